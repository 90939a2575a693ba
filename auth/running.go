package auth

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/observe"
)

// The causes that cancel the context of a guarded request before the request ends. [context.Cause]
// returns them; the context's error is [context.Canceled].
var (
	ErrKeyDeleted  = errors.New("the API key of this request was deleted") // alone or with its account
	ErrKeyExpired  = errors.New("the API key of this request has expired")
	ErrKeyReplaced = errors.New("the value of this request's API key was replaced by a rotation, and its grace period is over")
	ErrKeyDisabled = errors.New("the API key of this request was turned off")
)

// causeOf returns the cause for err, a Verifier's error that wraps ErrUnauthorized.
func causeOf(err error) error {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		switch refusal.Outcome {
		case observe.Expired:
			return ErrKeyExpired
		case observe.Replaced:
			return ErrKeyReplaced
		case observe.Disabled:
			return ErrKeyDisabled
		}
	}
	return ErrKeyDeleted
}

// keyEnded reports whether ctx was canceled because the request's key ended.
func keyEnded(ctx context.Context) bool {
	switch context.Cause(ctx) {
	case ErrKeyDeleted, ErrKeyExpired, ErrKeyReplaced, ErrKeyDisabled:
		return true
	}
	return false
}

const (
	runningShards = 256
	maxExpiryWait = time.Minute // maximum wait between checks for expired keys, in case the clock is set forward
)

// running holds the guarded requests in progress, sharded by their key.
type running struct {
	now     func() time.Time
	seed    maphash.Seed
	changes atomic.Uint64 // number of calls to changed
	shards  [runningShards]runningShard
}

type runningShard struct {
	mu      sync.Mutex
	first   *guarded    // head of a doubly linked list
	changed uint64      // number of the latest change of a key in this shard
	timer   *time.Timer // calls running.expire
	due     int64       // when the timer fires, in Unix milliseconds; 0 means not set
	_       [64]byte    // keeps shards in different cache lines
}

func newRunning(now func() time.Time) *running {
	return &running{now: now, seed: maphash.MakeSeed()}
}

func (r *running) shard(keyID string) *runningShard {
	return &r.shards[maphash.String(r.seed, keyID)%runningShards]
}

// enter adds a request whose key was verified after the given number of changes. If the key may
// have changed since, it returns false, and the caller must verify the key again.
func (r *running) enter(g *guarded, changes uint64) bool {
	p := &g.caller.verified
	s := r.shard(p.KeyID)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed > changes {
		return false
	}
	g.shard, g.next = s, s.first
	if g.next != nil {
		g.next.previous = g
	}
	s.first = g
	r.expireAt(s, g, p)
	return true
}

// leave removes a request whose handler has returned.
func (r *running) leave(g *guarded) {
	s := g.shard
	if s == nil {
		return
	}
	s.mu.Lock()
	if g.previous != nil {
		g.previous.next = g.next
	} else {
		s.first = g.next
	}
	if g.next != nil {
		g.next.previous = g.previous
	}
	g.left = true
	s.mu.Unlock()
	if lease := g.lease.Load(); lease != nil {
		lease.cancel(nil)
	}
}

// changed returns the requests in progress with a key that has changed. If keyID is empty, it
// returns the requests of all keys of the account.
func (r *running) changed(account, keyID string) (list []*guarded) {
	number := r.changes.Add(1)
	visit := func(s *runningShard) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed = max(s.changed, number)
		for g := s.first; g != nil; g = g.next {
			if p := &g.caller.verified; p.Account == account && (keyID == "" || p.KeyID == keyID) {
				list = append(list, g)
			}
		}
	}
	if keyID != "" {
		visit(r.shard(keyID))
		return list
	}
	for i := range r.shards {
		visit(&r.shards[i])
	}
	return list
}

// lasting returns the requests that were already in progress when it was last called.
func (r *running) lasting() (list []*guarded) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for g := s.first; g != nil; g = g.next {
			if g.seen {
				list = append(list, g)
			}
			g.seen = true
		}
		s.mu.Unlock()
	}
	return list
}

// renew sets the expiry of a request to p.ExpiresAt, after its key was verified again as p.
func (r *running) renew(g *guarded, p *Principal) {
	g.shard.mu.Lock()
	defer g.shard.mu.Unlock()
	if !g.left {
		r.expireAt(g.shard, g, p)
	}
}

// expireAt sets the expiry of a request, and the timer of its shard. The caller must hold the lock.
func (r *running) expireAt(s *runningShard, g *guarded, p *Principal) {
	g.expiresAt, g.replaced = 0, p.Replaced
	if p.ExpiresAt.IsZero() {
		return
	}
	g.expiresAt = p.ExpiresAt.Add(time.Millisecond - 1).UnixMilli() // rounded up
	if s.due == 0 || g.expiresAt < s.due {
		r.setTimer(s, g.expiresAt)
	}
}

// setTimer sets the timer of a shard so that it fires at the given time or earlier.
func (r *running) setTimer(s *runningShard, at int64) {
	now := r.now().UnixMilli()
	wait := min(max(at-now, 1), maxExpiryWait.Milliseconds())
	s.due = now + wait
	if s.timer == nil {
		s.timer = time.AfterFunc(time.Duration(wait)*time.Millisecond, func() { r.expire(s) })
		return
	}
	s.timer.Reset(time.Duration(wait) * time.Millisecond)
}

// expire ends the requests of a shard whose keys have expired.
func (r *running) expire(s *runningShard) {
	now, next := r.now().UnixMilli(), int64(0)
	var expired, replaced []*guarded
	s.mu.Lock()
	for g := s.first; g != nil; g = g.next {
		switch at := g.expiresAt; {
		case at == 0:
		case now < at:
			if next == 0 || at < next {
				next = at
			}
		case g.replaced:
			replaced = append(replaced, g)
			g.expiresAt = 0
		default:
			expired = append(expired, g)
			g.expiresAt = 0
		}
	}
	s.due = 0
	if next != 0 {
		r.setTimer(s, next)
	}
	s.mu.Unlock()
	end(expired, ErrKeyExpired)
	end(replaced, ErrKeyReplaced)
}

// end cancels the contexts of the requests with this cause.
func end(list []*guarded, cause error) {
	for _, g := range list {
		g.leased().cancel(cause)
	}
}

// A lease is a request's context that can end before the request does.
type lease struct {
	context.Context
	cancel context.CancelCauseFunc
}

// leased returns the request's lease. It creates the lease on the first call, because most requests
// need none.
func (g *guarded) leased() *lease {
	if known := g.lease.Load(); known != nil {
		return known
	}
	ctx, cancel := context.WithCancelCause(g.Context)
	if g.lease.CompareAndSwap(nil, &lease{ctx, cancel}) {
		return g.lease.Load()
	}
	cancel(nil)
	return g.lease.Load()
}

// Done implements [context.Context].
func (g *guarded) Done() <-chan struct{} {
	if g.shard == nil {
		return g.Context.Done()
	}
	return g.leased().Done()
}

// Err implements [context.Context].
func (g *guarded) Err() error {
	if known := g.lease.Load(); known != nil {
		return known.Err()
	}
	return g.Context.Err()
}
