package webhooks

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/storageapi/storageapi/webhooks/internal/scheduler"
)

const (
	maxSettle   = 1024                 // settlements per store call
	busySettle  = 16                   // after a call with this many results, the next call waits
	settlePause = 4 * time.Millisecond // between calls, because each costs a commit, large or small
)

// A settler records the results of attempts.
type settler struct {
	*dispatcher // failing is set while the store accepts no results

	results  chan *inflight   // results to record; closed when there are no more
	recorded chan []*inflight // batches that are recorded or given up
	rejected chan []*inflight // batches that the store refused

	health  map[string]*health // by webhook ID
	swept   time.Time          // last removal of old entries from health
	refused []refusal
	pause   time.Duration // between calls, while the store fails
	again   time.Time     // time of the next call
	last    time.Time     // end of the last call
	size    int           // number of new results in the last call
	err     error         // of the last call

	settlements []settlement // empty buffer, for reuse
}

// A health is the settler's state for one webhook. It may be newer than the webhook in the tasks
// of running attempts.
type health struct {
	off     time.Time // when the webhook was disabled
	refused int       // number of settlements that the store refused individually
}

// healthLife is how long entries are kept. It must be longer than any attempt that is running when
// a webhook is disabled.
const healthLife = time.Hour

// A refusal is a batch that the store refused.
type refusal struct {
	batch []*inflight
	pause time.Duration // between tries
	at    time.Time     // the next try
}

const maxRefusal = time.Minute // maximum pause between tries of one settlement; pauses double

func newSettler(d *dispatcher, maxResults int) *settler {
	return &settler{
		dispatcher: d, health: make(map[string]*health),
		results: make(chan *inflight, maxResults), recorded: make(chan []*inflight), rejected: make(chan []*inflight),
	}
}

// run records results, in batches of all results that are ready.
//
// Refused batches are tried again later, in halves, so that a settlement that the store never
// accepts does not block the others. While the store accepts no batch, no attempt begins except
// trials. Once the context attempts is done, refused results are given up, and their deliveries
// will be attempted again.
func (s *settler) run(attempts context.Context) {
	for {
		fresh := s.results
		if s.failing.Load() {
			fresh = nil
		}
		select {
		case f, ok := <-fresh:
			if !ok {
				return
			}
			s.await(attempts)
			batch := s.gather(f)
			s.record(batch)
			s.last, s.size = time.Now(), len(batch)
		case <-s.next():
			s.retry()
		case <-attempts.Done():
			s.finish()
			return
		}
	}
}

// If a large store call has just ended, await waits, so that more results can share the next call.
func (s *settler) await(attempts context.Context) {
	if wait := settlePause - time.Since(s.last); wait > 0 && s.size >= busySettle {
		select {
		case <-time.After(wait):
		case <-attempts.Done():
		}
	}
}

// next returns a timer for the next retry of a refused batch, or nil if none was refused.
func (s *settler) next() <-chan time.Time {
	switch {
	case len(s.refused) == 0:
		return nil
	case s.failing.Load():
		return time.After(time.Until(s.again))
	}
	return time.After(time.Until(s.refused[s.first()].at))
}

// first returns the index in refused of the batch to retry first.
func (s *settler) first() (first int) {
	for i := range s.refused {
		if s.refused[i].at.Before(s.refused[first].at) {
			first = i
		}
	}
	return first
}

// gather returns a batch of f and all other results that are ready.
func (s *settler) gather(f *inflight) []*inflight {
	batch := append(make([]*inflight, 0, 16), f)
	for more := true; more && len(batch) < maxSettle; {
		select {
		case next, ok := <-s.results:
			if more = ok; ok {
				batch = append(batch, next)
			}
		default:
			more = false
		}
	}
	now := time.Now()
	for _, f := range batch {
		s.diagnose(f, now)
		s.entries.settlement(&f.settlement)
	}
	return batch
}

// record settles a batch for the first time. A refusal counts as a failure of the store, unless
// all results are for webhooks whose other settlements the store also refuses.
func (s *settler) record(batch []*inflight) {
	if !s.try(batch) {
		now := time.Now()
		if slices.ContainsFunc(batch, func(f *inflight) bool { return s.healthOf(f, now).refused == 0 }) {
			s.failing.Store(true)
			s.halt.activity.write.Store(&storeFailure{now, fmt.Errorf("settle: %w", s.err)})
		}
		s.rejected <- batch
		s.putOff(refusal{batch: batch})
	}
}

// retry tries a refused batch again. While the store accepts no batch, retry prefers new results,
// which may show whether the store itself fails.
func (s *settler) retry() {
	if s.failing.Load() {
		select {
		case f, ok := <-s.results:
			if ok {
				s.record(s.gather(f))
				return
			}
		default:
		}
	}
	if r := s.take(s.first()); !s.try(r.batch) {
		s.putOff(r)
	}
}

// try settles a batch. If the store accepts the batch, try passes it on and returns true.
func (s *settler) try(batch []*inflight) bool {
	settlements := s.settlements[:0]
	for _, f := range batch {
		settlements = append(settlements, f.settlement)
	}
	s.settlements = settlements
	defer clear(settlements)
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	begun := began(s.reporter.observer.Settled != nil)
	a := s.halt.activity
	a.mark(&a.settling)
	call := &settling{store: s.store, scheduler: s.scheduler, now: s.config.Now(), batch: batch}
	err := call.settle(ctx)
	a.settling.Store(0)
	s.reporter.called(begun, len(settlements), len(call.stale), err)
	s.pause = s.halt.backoff("settle", s.pause, err)
	s.again, s.err = time.Now().Add(s.pause), err
	if err != nil {
		return false
	}
	s.failing.Store(false)
	a.write.Store(nil)
	s.reporter.settled(settlements, call.stale)
	s.recorded <- batch
	return true
}

// putOff keeps a refused batch for a retry. If it has several results, putOff splits it in half.
func (s *settler) putOff(r refusal) {
	if half := len(r.batch) / 2; half > 0 {
		at := time.Now().Add(minBackoff)
		s.refused = append(s.refused, refusal{batch: r.batch[:half], at: at}, refusal{batch: r.batch[half:], at: at})
		return
	}
	r.pause = min(max(2*r.pause, minBackoff), maxRefusal)
	r.at = time.Now().Add(r.pause)
	s.refused = append(s.refused, r)
	s.healthOf(r.batch[0], r.at).refused++
}

// take removes and returns the refusal with index i.
func (s *settler) take(i int) refusal {
	r := s.refused[i]
	s.refused = slices.Delete(s.refused, i, i+1)
	if r.pause > 0 {
		s.healthOf(r.batch[0], r.at).refused--
	}
	return r
}

// finish tries each remaining batch once, and gives it up if the store refuses it. While the store
// fails, finish gives up batches without a try.
func (s *settler) finish() {
	for len(s.refused) > 0 {
		if r := s.take(0); s.failing.Load() || !s.try(r.batch) {
			s.giveUp(r.batch)
		}
	}
	for f := range s.results {
		if batch := s.gather(f); s.failing.Load() || !s.try(batch) {
			s.failing.Store(true)
			s.giveUp(batch)
		}
	}
}

// giveUp passes on unrecorded results. The state of their deliveries in the store is unknown.
func (s *settler) giveUp(batch []*inflight) {
	for _, f := range batch {
		f.fate = scheduler.Fate{Stale: true}
	}
	s.recorded <- batch
}

// healthOf returns the health of the attempt's webhook, and creates it if necessary.
func (s *settler) healthOf(f *inflight, now time.Time) *health {
	if now.Sub(s.swept) > healthLife {
		s.swept = now
		maps.DeleteFunc(s.health, func(_ string, h *health) bool { return h.refused == 0 && now.Sub(h.off) > healthLife })
	}
	id := f.settlement.Task.Webhook.ID
	if s.health[id] == nil {
		s.health[id] = new(health)
	}
	return s.health[id]
}

// diagnose makes sure that a webhook is disabled only once, even if several running attempts get
// a 410.
func (s *settler) diagnose(f *inflight, now time.Time) {
	if f.settlement.Deactivate == "" {
		return
	}
	if h := s.healthOf(f, now); h.off.Before(f.begun) {
		h.off = now
	} else {
		f.settlement.Deactivate = "" // the attempt began before the webhook was disabled
	}
}
