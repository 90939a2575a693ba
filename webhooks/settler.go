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
	maxSettle   = 1024                 // settlements a store call
	busySettle  = 16                   // settlements, when many come,
	settlePause = 4 * time.Millisecond // between calls: each costs a commit, large or small
)

// A settler records the results of attempts.
type settler struct {
	*dispatcher // failing is set while the store takes no results

	results  chan *inflight   // to be recorded; closed when there are no more
	recorded chan []*inflight // those that are, or are given up
	rejected chan []*inflight // those that the store did not take

	health  map[string]*health // by webhook
	swept   time.Time          // when those were last dropped that say nothing any more
	refused []refusal
	pause   time.Duration // while the store fails: between calls
	again   time.Time     // the next one
	last    time.Time     // when the last call ended
	size    int           // of what came new with it
	err     error         // of the last call

	settlements []settlement // of the last call, empty: to be used again
}

// A health is what the settler knows of a webhook and the tasks of attempts in flight may
// not.
type health struct {
	off     time.Time // the webhook was turned off
	refused int       // settlements that the store did not take one by one
}

// healthLife is after how long nothing is left of attempts that were in flight when a
// webhook was turned off.
const healthLife = time.Hour

// A refusal is a batch that the store did not take.
type refusal struct {
	batch []*inflight
	pause time.Duration // between tries
	at    time.Time     // the next one
}

const maxRefusal = time.Minute // pauses between tries of one settlement: they double

func newSettler(d *dispatcher, maxResults int) *settler {
	return &settler{
		dispatcher: d, health: make(map[string]*health),
		results: make(chan *inflight, maxResults), recorded: make(chan []*inflight), rejected: make(chan []*inflight),
	}
}

// run records results, in batches of those that are there.
//
// What the store refuses is tried again later, and in halves, so that a settlement
// that it never takes does not hold up the others. As long as it takes nothing, no
// attempt begins except trials. Once attempts are cut short what is refused is given up,
// and will be attempted again.
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

// await waits for others to share a call with, if there was one just before that
// had many.
func (s *settler) await(attempts context.Context) {
	if wait := settlePause - time.Since(s.last); wait > 0 && s.size >= busySettle {
		select {
		case <-time.After(wait):
		case <-attempts.Done():
		}
	}
}

// next tells when to try again what was refused.
func (s *settler) next() <-chan time.Time {
	switch {
	case len(s.refused) == 0:
		return nil
	case s.failing.Load():
		return time.After(time.Until(s.again))
	}
	return time.After(time.Until(s.refused[s.first()].at))
}

// first returns the index of the refusal that is to be tried first.
func (s *settler) first() (first int) {
	for i := range s.refused {
		if s.refused[i].at.Before(s.refused[first].at) {
			first = i
		}
	}
	return first
}

// gather returns a result with the others that are there.
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

// record settles a batch for the first time. If the store does not take it, it is
// the store that fails, unless all of it is of webhooks whose other settlements the store
// does not take either.
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

// retry tries once more what was refused. While the store takes nothing it prefers
// what is new: that may tell whether it is the store that fails.
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

// try settles a batch and hands it on, if the store takes it.
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
	call := &settling{store: s.store, scheduler: s.scheduler, batch: batch}
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

// putOff keeps a batch to be tried again, in halves if it is more than one.
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

// take takes out a refusal.
func (s *settler) take(i int) refusal {
	r := s.refused[i]
	s.refused = slices.Delete(s.refused, i, i+1)
	if r.pause > 0 {
		s.healthOf(r.batch[0], r.at).refused--
	}
	return r
}

// finish tries everything once more, unless the store fails, and gives it up then.
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

// giveUp hands on results that are not recorded: what became of their deliveries is unknown.
func (s *settler) giveUp(batch []*inflight) {
	for _, f := range batch {
		f.fate = scheduler.Fate{Stale: true}
	}
	s.recorded <- batch
}

// healthOf returns the health of the attempt's webhook, which may be new.
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

// diagnose lets a webhook be turned off once, however many of the attempts in flight
// are answered 410.
func (s *settler) diagnose(f *inflight, now time.Time) {
	if f.settlement.Deactivate == "" {
		return
	}
	if h := s.healthOf(f, now); h.off.Before(f.begun) {
		h.off = now
	} else {
		f.settlement.Deactivate = "" // its task does not know of it
	}
}
