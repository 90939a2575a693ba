package limiter

import (
	"container/list"
	"time"

	"github.com/storageapi/storageapi/internal/heap"
)

// A webhook is what the limiter knows of one.
type webhook struct {
	id         string
	account    *account
	health     health
	slots      []*Slot // in no order
	cut        int     // of them, those whose attempt was cut short
	unproven   int     // of the others, those taken while the webhook was unproven
	unrecorded int     // attempts that have ended, until they are recorded
	suspended  int     // of them, those before which no other may begin

	cap      int
	filled   int       // successes while the cap was used up, since it last changed
	ramping  bool      // the breaker was open: the cap doubles
	changed  time.Time // when the cap last did, while ramping
	failures int       // in a row
	finished int       // attempts that ended by themselves

	slow     bool      // attempts take long
	late     int       // slots of attempts that have taken too long already
	lastLate time.Time // when one last did
	guessed  bool      // nothing was known of it before it was taken for slow
	doubted  bool      // that has happened once, and was taken back
	trusted  bool      // see Trust; until the next failure

	turn    time.Time     // unless healthy: when it may next have attempts
	pause   time.Duration // open: between probes
	place   int           // in its queue, parked or nowhere
	had     int           // slots when it was given a turn, and those taken since for requested attempts
	given   int           // turns that are being claimed
	active  time.Time     // when an attempt last began or ended
	seen    time.Time     // when it was last put at the end of Limiter.byUse
	element *list.Element // of Limiter.byUse
	waits   bool          // for its turn, or suspended: its Cap is 0
}

const trackedFor = 2 * time.Minute // a webhook that is idle

const (
	nowhere = heap.Nowhere
	parked  = -2 // in account.parked
)

// An account is what the limiter knows of one.
type account struct {
	id string
	pool
	requested int // slots of requested attempts, except those cut short

	// parked are webhooks whose turn had come while the account held its share.
	// Those that are not parked any more are still in it, to be passed over.
	parked []*webhook
}

// held returns how many slots the webhook holds, except those of attempts cut short.
func (w *webhook) held() int { return len(w.slots) - w.cut }

// isIdle reports whether nothing is in flight or to be recorded.
func (w *webhook) isIdle() bool { return len(w.slots) == 0 && w.unrecorded == 0 }

func (w *webhook) remove(s *Slot) {
	last := len(w.slots) - 1
	w.slots[s.index] = w.slots[last]
	w.slots[s.index].index = s.index
	w.slots[last] = nil
	w.slots = w.slots[:last]
}

// webhook returns the webhook of an attempt that begins, which may be new.
func (l *Limiter) webhook(start Start) *webhook {
	w := l.webhooks[start.Webhook]
	if w == nil {
		a := l.accounts[start.Account]
		if a == nil {
			a = &account{id: start.Account, pool: pool{slots: l.perAccount}}
			l.accounts[a.id] = a
		}
		l.pool.webhooks++
		a.webhooks++
		w = &webhook{id: start.Webhook, account: a, cap: l.firstCap, place: nowhere, seen: start.At}
		if start.Failing { // as it was when it was forgotten, or the process ended
			w.failures, w.cap = openAfter-1, 1
		}
		w.element = l.byUse.PushBack(w)
		l.webhooks[w.id] = w
	}
	return w
}

// forget drops a webhook with nothing in flight.
func (l *Limiter) forget(w *webhook) {
	l.queues[w.health].remove(w)
	l.setWaits(w, false)
	l.count(w, 0, -1)
	delete(l.webhooks, w.id)
	l.byUse.Remove(w.element)
	l.pool.webhooks--
	if w.account.webhooks--; w.account.webhooks == 0 {
		delete(l.accounts, w.account.id)
	}
	l.unpark(w.account)
}

// forgetIdle drops healthy webhooks that have been idle for long.
func (l *Limiter) forgetIdle(now time.Time) {
	for front := l.byUse.Front(); front != nil; front = l.byUse.Front() {
		w := front.Value.(*webhook)
		switch {
		case now.Sub(w.seen) < trackedFor:
			return
		case w.health == healthy && w.isIdle() && now.Sub(w.active) >= trackedFor:
			l.forget(w)
		default:
			w.seen = now
			l.byUse.MoveToBack(front)
		}
	}
}
