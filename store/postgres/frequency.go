package postgres

import (
	"sync/atomic"
	"time"
)

const (
	lookSeldom = time.Second // between the looks of a node that is notified
	tellEvery  = time.Second // that a host publishes in transactions

	// A node polls from so many backends on that notifications would wake in a second, about a tenth of a
	// core, if it finds so much a second itself; and it looks as often as to find two changes.
	pollFromWakes = 5000
	pollFromFound = 5
	pollMin       = 8 * time.Millisecond
	pollMax       = 64 * time.Millisecond
)

// A frequency is how often a node looks. One that is notified looks seldom, in case a notification was lost.
// But it looks as often as PollEvery says for what nobody tells it of: while it does not listen, and while
// hosts publish in transactions that may be open still. And it polls, very often, once notifications
// would cost the server more than looks, since each of them wakes a backend of every node.
type frequency struct {
	listens atomic.Int32 // connections do
	opened  atomic.Int64 // until when hosts publish in transactions, as was heard

	// These are guarded as looks are: the oldest transaction that ran at the last one, and one from
	// which on none is open that published and was heard of.
	oldest, open int64

	own, found atomic.Int64 // changes since the last look by this node, and since the last heartbeat by others
	wakes      float64      // pollFromWakes
	counted    time.Time    // when that heartbeat was
	polling    bool         // as it said
	pollEvery  atomic.Int64 // between looks, until others have read that it does not poll any more
	pollUntil  atomic.Int64
}

// every returns how long it may be until the next look, with this PollEvery.
func (p *frequency) every(poll time.Duration) time.Duration {
	every, now := max(poll, lookSeldom), time.Now().UnixNano()
	if p.listens.Load() == 0 || now < p.opened.Load() || p.oldest < p.open {
		every = poll
	}
	if now < p.pollUntil.Load() {
		every = min(every, time.Duration(p.pollEvery.Load()))
	}
	return every
}

// hostPublishes notes that a host publishes in transactions, for so long that it is told again.
func (p *frequency) hostPublishes() { p.opened.Store(time.Now().Add(2 * tellEvery).UnixNano()) }

// looked notes what a look that began then has found.
func (p *frequency) looked(began time.Time, list []changeRow, seen *horizon) {
	if p.oldest = seen.min; began.UnixNano() < p.opened.Load() {
		p.open = seen.max
	}
	var found, last int64
	for i := range list {
		if list[i].added != last {
			found, last = found+1, list[i].added
		}
	}
	p.found.Add(max(0, found-p.own.Swap(0)))
}

// polls reports, for each heartbeat of a node, whether it polls from now on, so that the others need not
// notify it, of so many nodes.
func (p *frequency) polls(nodes int) bool {
	now := time.Now()
	if now.Sub(p.counted) < nodeLasts/6 {
		return p.polling
	}
	rate := float64(p.found.Swap(0)) / now.Sub(p.counted).Seconds()
	least := max(pollFromFound, p.wakes/float64(nodes*nodes)) // each of them would wake all
	if p.polling {
		least /= 2
	}
	p.counted, p.polling = now, nodes > 1 && rate >= least
	if p.polling {
		p.pollEvery.Store(int64(min(max(time.Duration(2*float64(time.Second)/rate), pollMin), pollMax)))
		p.pollUntil.Store(now.Add(nodeLasts).UnixNano())
	}
	return p.polling
}
