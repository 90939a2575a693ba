package apikeys

import (
	"cmp"
	"context"
	"encoding/binary"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

const (
	useInterval = time.Minute // between two writes
	maxUses     = 1 << 16     // maximum keys with pending uses; bounds memory
	useBatch    = 64          // uses per store call: keeps its write steps short
	useTimeout  = 10 * time.Second
	maxPause    = time.Second // between two calls
	maxFailures = 2           // consecutive failed calls that end a write
)

// uses remembers when keys were last used and writes these times in the
// background, at most once a minute per token. Recording a use takes a lock for
// a map access and never waits for the store.
//
// An idle process has no goroutine for this: the first use after a write sets a timer for the next
// write.
type uses struct {
	store driver.KeyStore
	log   *slog.Logger

	// seen lets frequent uses of a key skip the lock. Several keys share a slot, which holds 16
	// bits of the hash and 16 bits of the second of the last recorded use. A collision loses a use,
	// but the key's use in the next second makes up for it.
	seen [1 << 16]atomic.Uint32

	mu      sync.Mutex
	pending map[string]*pendingUse // by key ID
	written map[string]*pendingUse // uses in the latest write
	timer   *time.Timer            // set while uses are pending
	closed  bool
	closing chan struct{} // closed when closed is set
	halted  bool          // the log already reports that the store is halted

	failed atomic.Pointer[error] // error of the latest write that had uses to write

	writing chan struct{} // semaphore of size 1: serializes writes, and Close waits for it
}

// A pendingUse holds the uses of a key's tokens. If more than two tokens of the key were used since
// the last write, it keeps the two that were used last.
type pendingUse struct {
	account string
	tokens  []tokenUse // at most two
}

type tokenUse struct {
	hash driver.Hash
	ms   int64 // Unix milliseconds
}

func (t *tokenUse) at() time.Time { return time.UnixMilli(t.ms).UTC() }

// add records a use of a token.
func (p *pendingUse) add(hash driver.Hash, ms int64) {
	for i := range p.tokens {
		if p.tokens[i].hash == hash {
			p.tokens[i].ms = max(p.tokens[i].ms, ms)
			return
		}
	}
	if p.tokens = append(p.tokens, tokenUse{hash, ms}); len(p.tokens) > 2 {
		slices.SortFunc(p.tokens, func(a, b tokenUse) int { return cmp.Compare(b.ms, a.ms) })
		p.tokens = p.tokens[:2]
	}
}

// record remembers a use of the key's token with the given hash, at most once per second and token.
func (u *uses) record(key *Key, hash driver.Hash, at time.Time) {
	sum := &hash.Sum
	slot := &u.seen[binary.LittleEndian.Uint16(sum[:])]
	note := uint32(binary.LittleEndian.Uint16(sum[2:]))<<16 | uint32(uint16(at.Unix())) | 1<<31
	if slot.Load() == note {
		return
	}
	slot.Store(note)
	u.add(key.Account, key.ID, hash, at.UnixMilli())
}

// add remembers a use for the next write. Once maxUses keys are pending, it ignores the uses of
// further keys.
func (u *uses) add(account, id string, hash driver.Hash, ms int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if use := u.pending[id]; use != nil {
		use.add(hash, ms)
		return
	}
	if u.closed || len(u.pending) == maxUses {
		return
	}
	if u.pending == nil {
		u.pending = make(map[string]*pendingUse)
	}
	u.pending[id] = &pendingUse{account, []tokenUse{{hash, ms}}}
	if u.timer == nil {
		u.timer = time.AfterFunc(useInterval, func() { _ = u.write(context.Background()) })
	}
}

// unwritten holds the uses that were pending at some time, and those in the latest write. Both maps
// are by key ID.
type unwritten [2]map[string]*pendingUse

// unwritten returns the uses that a key read after this call may still lack. Later uses may be
// added to the returned map of pending uses.
func (u *uses) unwritten() unwritten {
	u.mu.Lock()
	defer u.mu.Unlock()
	return unwritten{u.pending, u.written}
}

// overlay advances key's LastUsedAt and PreviousUsedAt to the uses in before, which were unwritten
// when the key was read. This keeps the times from appearing to go back during a write.
func (u *uses) overlay(key *Key, before unwritten) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, uses := range before {
		use := uses[key.ID]
		if use == nil {
			continue
		}
		for _, token := range use.tokens {
			key.LastUsedAt = later(key.LastUsedAt, token.at())
			if token.hash == key.Previous {
				key.PreviousUsedAt = later(key.PreviousUsedAt, token.at())
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// write writes the pending uses in small steps with pauses, because other writers wait for each
// step. The uses of a failed step become pending again. After two consecutive failures, or if ctx
// ends, all remaining uses become pending again. It returns the last error.
func (u *uses) write(ctx context.Context) error {
	select {
	case u.writing <- struct{}{}:
		defer func() { <-u.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	u.mu.Lock()
	if u.timer != nil {
		u.timer.Stop()
	}
	pending := u.pending
	u.pending, u.written, u.timer = nil, pending, nil
	u.mu.Unlock()

	var failed error
	keys, failures := 0, 0
	for step := range steps(pending) {
		began := time.Now()
		err := failed
		switch ended := ctx.Err(); {
		case ended != nil:
			err = ended
		case failures < maxFailures:
			err = u.writeStep(step)
		}
		if err == nil {
			failures = 0
			u.pause(ctx, 4*time.Since(began))
			continue
		}
		failed = err
		failures++
		keys += len(step)
		for _, use := range step {
			u.add(use.Account, use.ID, use.Hash, use.At.UnixMilli())
		}
	}
	if failed == nil {
		u.halted = false
		if len(pending) > 0 {
			u.failed.Store(nil)
		}
		return nil
	}
	if ctx.Err() != nil {
		return failed // the caller handles it
	}
	u.failed.Store(&failed)
	// Log a halted store only once.
	cause := u.store.Capabilities().Halted
	halted := cause != nil && cause() != nil
	if !halted || !u.halted {
		u.log.Error("storageapi: last use of API keys not recorded", "keys", keys, "error", failed)
	}
	u.halted = halted
	return failed
}

// steps yields the uses in steps, ordered by account and ID. The order keeps neighboring rows in
// one step, and because all nodes use the same order, it prevents deadlocks. The yielded slice is
// reused and must not be kept.
func steps(pending map[string]*pendingUse) iter.Seq[[]driver.KeyUse] {
	type keyed struct {
		id  string
		use *pendingUse
	}
	keys := make([]keyed, 0, len(pending))
	for id, use := range pending {
		keys = append(keys, keyed{id, use})
	}
	slices.SortFunc(keys, func(a, b keyed) int {
		return cmp.Or(strings.Compare(a.use.account, b.use.account), strings.Compare(a.id, b.id))
	})
	return func(yield func([]driver.KeyUse) bool) {
		step := make([]driver.KeyUse, 0, min(2*len(keys), useBatch))
		for i, key := range keys {
			for _, token := range key.use.tokens {
				step = append(step, driver.KeyUse{Account: key.use.account, ID: key.id, Hash: token.hash, At: token.at()})
			}
			if last := i == len(keys)-1; len(step)+2 > useBatch || last { // a key adds two at most
				if !yield(step) {
					return
				}
				step = step[:0]
			}
		}
	}
}

func (u *uses) writeStep(step []driver.KeyUse) error {
	ctx, cancel := context.WithTimeout(context.Background(), useTimeout)
	defer cancel()
	return u.store.RecordKeyUse(ctx, step)
}

// pause waits for d, at most maxPause, or until u is closing or ctx ends.
func (u *uses) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(min(d, maxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-u.closing:
	case <-ctx.Done():
	}
}

// close writes the pending uses and ends recording. It tries once only. If a write is already
// running, it continues without pauses.
func (u *uses) close() {
	u.mu.Lock()
	if !u.closed {
		close(u.closing)
	}
	u.closed = true
	if u.timer != nil {
		u.timer.Stop()
	}
	u.mu.Unlock()
	_ = u.write(context.Background()) // logs its error
}
