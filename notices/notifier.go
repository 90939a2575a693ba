package notices

import (
	"context"
	"errors"
	"maps"
	"time"
)

const (
	lookEvery    = time.Second      // at what is pending, by who has the lease
	leaseEvery   = 10 * time.Second // who has it not asks for the lease
	leaseFor     = time.Minute      // longer than leaseRenew and a call together
	leaseRenew   = 20 * time.Second
	scanEvery    = time.Hour
	callTimeout  = 10 * time.Second // for one call of Notify
	storeTimeout = 10 * time.Second // for one call of the store
	grace        = time.Second      // for a call when Run ends
	takeEvery    = time.Second      // while calls are made

	pageSize    = 256
	maxInARow   = 16 // failures, before a pause
	maxBackoff  = 10 * time.Minute
	minimumWait = time.Second
)

var maxWaiting = 10_000 // targets; less in tests

// A notifier tells the host what is pending. It is of one Run.
type notifier struct {
	*Service
	waiting map[target]*backoff // targets whose last call failed
	renewed time.Time           // the lease; zero: another has it
	scanned time.Time
	seen    uint64   // the greatest number that was pending
	taken   []uint64 // numbers of notices that the host has taken, and the store does not know of
	tookAt  time.Time

	// Of the round under way.
	begun time.Time
	full  bool // no more targets may wait: what is new waits for another round
}

// A target is that of an account.
type target struct {
	account string
	Target
}

// A backoff says until when the notices of a target wait.
type backoff struct {
	wait  time.Duration
	until time.Time
	met   time.Time // when the round began that met one of them last
}

// round looks once at all that is pending, and returns when to do so again.
//
// A page is of one state of the store, in which no notice of a target comes without those
// before it. The next page is of a later one: what it has of a target may be later than
// what was stored meanwhile among the numbers of the page before. So it tells of what had
// its number before the round began: what was to come before that was stored by then.
func (n *notifier) round(ctx context.Context) time.Duration {
	if !n.take(ctx) { // or else it would be told again and again
		return lookEvery
	}
	if !n.lead(ctx) {
		return leaseEvery
	}
	if scan := n.config.Scan; scan != nil && (n.scanned.IsZero() || time.Since(n.scanned) >= scanEvery) {
		n.scanned = time.Now()
		if err := scan(ctx); err != nil && ctx.Err() == nil {
			n.config.Logger.Error("storageapi: looking for notices to add failed", "error", err, "again_in", scanEvery)
		}
		if !n.lead(ctx) {
			return lookEvery
		}
	}
	n.begun, n.full = time.Now(), false
	failed, before := 0, n.seen // failures in a row; numbers up to this were there before
	progress, left := false, false
	for after, more := uint64(0), true; more; {
		list, err := n.pending(ctx, after)
		if err != nil {
			n.logStore(ctx, "pending notices", err)
			return lookEvery
		}
		first := after == 0
		more = len(list) == pageSize
		for i := range list {
			after = list[i].Number
			n.seen = max(n.seen, after)
			failing := n.meet(&list[i].Notice)
			if !first && after > before {
				left = true
				continue
			}
			switch told, err := n.tell(ctx, &list[i], failing); {
			case err != nil:
				failed++
			case told:
				failed, progress = 0, true
			}
			if failed == maxInARow || time.Since(n.tookAt) >= takeEvery && !n.take(ctx) || !n.lead(ctx) {
				return lookEvery
			}
		}
	}
	maps.DeleteFunc(n.waiting, func(_ target, b *backoff) bool { return !b.met.Equal(n.begun) }) // nothing is pending
	if n.take(ctx) && progress && left {
		return 0
	}
	return lookEvery
}

// meet returns the backoff of a notice's target, if it has one.
func (n *notifier) meet(notice *Notice) *backoff {
	failing := n.waiting[target{notice.Account, notice.Target}]
	if failing != nil {
		failing.met = n.begun
	}
	return failing
}

// lead reports whether this service is the one that tells, and prolongs its lease in time.
// It is not if the lease has run out meanwhile: another may have told what this one has read.
func (n *notifier) lead(ctx context.Context) bool {
	if !n.renewed.IsZero() && time.Since(n.renewed) < leaseRenew {
		return ctx.Err() == nil
	}
	asked := time.Now()
	ranOut := !n.renewed.IsZero() && asked.Sub(n.renewed) >= leaseFor
	timed, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	held, err := n.store.LeaseNotices(timed, n.holder, leaseFor)
	if err != nil {
		n.logStore(ctx, "lease for notices", err)
		held = false
	}
	if n.renewed = asked; !held {
		n.renewed = time.Time{}
	}
	return held && !ranOut
}

func (n *notifier) pending(ctx context.Context, after uint64) ([]Numbered, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return n.store.PendingNotices(ctx, after, pageSize)
}

// tell has the host told of a notice, unless its target waits, and reports whether it was.
// A target that waits when the round comes to it waits until the next: what comes later
// must not overtake what was passed over.
func (n *notifier) tell(ctx context.Context, numbered *Numbered, failing *backoff) (told bool, err error) {
	notice := &numbered.Notice
	of := target{notice.Account, notice.Target}
	n.full = n.full || len(n.waiting) >= maxWaiting
	if failing != nil && n.begun.Before(failing.until) || failing == nil && n.full {
		return false, nil
	}
	if err := n.call(ctx, notice); err != nil {
		if ctx.Err() != nil {
			return false, err
		}
		if failing == nil {
			failing = &backoff{met: n.begun}
			n.waiting[of] = failing
		}
		failing.wait = min(max(2*failing.wait, minimumWait), maxBackoff)
		failing.until = time.Now().Add(failing.wait)
		n.config.Logger.Warn("storageapi: Config.Notify failed", "notice", notice.ID, "action", string(notice.Action), "error", err, "again_in", failing.wait)
		return false, err
	}
	delete(n.waiting, of)
	n.taken = append(n.taken, numbered.Number)
	return true, nil
}

var (
	errNotReturned = errors.New("it panicked or ended its goroutine")
	errLeftBehind  = errors.New("it does not return, and Run does")
)

// call calls Notify on a goroutine of its own.
func (n *notifier) call(ctx context.Context, notice *Notice) error {
	timed, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	over := make(chan error, 1)
	go func() {
		err := errNotReturned
		defer func() {
			_ = recover() // its value could hold anything
			over <- err
		}()
		err = n.config.Notify(timed, *notice)
	}()
	late := time.AfterFunc(callTimeout+grace, func() {
		n.config.Logger.Error("storageapi: Config.Notify does not return: no notices are told", "notice", notice.ID)
	})
	defer late.Stop()
	select {
	case err := <-over:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-over:
		return err
	case <-time.After(grace):
		return errLeftBehind
	}
}

// take lets the store know what the host has taken, and reports whether it does.
func (n *notifier) take(ctx context.Context) bool {
	n.tookAt = time.Now()
	if len(n.taken) == 0 {
		return true
	}
	timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if err := n.store.TakeNotices(timed, n.taken); err != nil {
		n.logStore(ctx, "take notices", err)
		return false
	}
	n.taken = n.taken[:0]
	return true
}

// end gives the lease back.
func (n *notifier) end(ctx context.Context) {
	n.take(ctx)
	if n.renewed.IsZero() {
		return
	}
	timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	_, _ = n.store.LeaseNotices(timed, n.holder, 0) // or else it runs out
}

func (n *notifier) logStore(ctx context.Context, step string, err error) {
	if ctx.Err() == nil {
		n.config.Logger.Error("storageapi: store failed", "step", step, "error", err)
	}
}
