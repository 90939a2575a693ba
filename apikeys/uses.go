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

	"github.com/storageapi/storageapi/internal/testhook"
)

const (
	useInterval = time.Minute // between two writes of what one key's last use was
	maxUses     = 1 << 16     // keys remembered between two writes: bounds memory
	useBatch    = 64          // uses per store call: keeps its write steps short
	useTimeout  = 10 * time.Second
	maxPause    = time.Second // between two calls
	maxFailures = 2           // calls in a row, of one write
)

// uses remembers when keys were last used and writes it in the background, at
// most once a minute a token. Recording a use takes a lock for a map access and
// never waits for the store.
//
// No goroutine waits while there is nothing to write: the first use after a
// write sets a timer for the next.
type uses struct {
	store Store
	log   *slog.Logger

	// seen spares a busy key the lock. A slot is shared by several keys and holds which
	// of them was recorded last and in which second, 16 bits of each. A collision costs
	// a use, which the next second makes good.
	seen [1 << 16]atomic.Uint32

	mu      sync.Mutex
	pending map[string]*pendingUse // by key id
	written map[string]*pendingUse // what the last write took, until the next one
	timer   *time.Timer            // set while something is pending
	closed  bool
	closing chan struct{} // closed with it
	halted  bool          // it was logged that the store writes nothing any more

	failed atomic.Pointer[error] // of the last write, if it had any uses to write

	writing chan struct{} // has room for one: a write at a time, and Close waits
}

// A pendingUse is of one key: of as many of its tokens as can be live at a time.
// Where more were used between two writes, those used last.
type pendingUse struct {
	account string
	tokens  []tokenUse // at most two
}

type tokenUse struct {
	hash Hash
	ms   int64 // Unix milliseconds
}

func (t *tokenUse) at() time.Time { return time.UnixMilli(t.ms).UTC() }

// add notes that a token was used.
func (p *pendingUse) add(hash Hash, ms int64) {
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

// record notes a use of the key by that hash, at most once a second a token.
func (u *uses) record(key *Key, hash Hash, at time.Time) {
	sum := &hash.Sum
	slot := &u.seen[binary.LittleEndian.Uint16(sum[:])]
	note := uint32(binary.LittleEndian.Uint16(sum[2:]))<<16 | uint32(uint16(at.Unix())) | 1<<31
	if slot.Load() == note {
		return
	}
	slot.Store(note)
	u.add(key.Account, key.ID, hash, at.UnixMilli())
}

// add remembers a use for the next write. Once maxUses keys are remembered,
// further ones are not.
func (u *uses) add(account, id string, hash Hash, ms int64) {
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

// unwritten are uses that were not written yet at some time, by key id, or only just.
type unwritten [2]map[string]*pendingUse

// unwritten returns what a key that is read from now on may lack. More is added to it
// while it is pending.
func (u *uses) unwritten() unwritten {
	u.mu.Lock()
	defer u.mu.Unlock()
	return unwritten{u.pending, u.written}
}

// overlay raises key's LastUsedAt and PreviousUsedAt to uses that were not written
// yet before it was read, so that they never seem to be set back by a write that came
// between.
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

// write writes what is pending, in small steps with pauses: other steps of the store wait
// for them. What the store refuses is pending again, and all that is left if that happens twice in
// a row, or ctx ends. It returns the last error.
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
		return failed // its caller knows
	}
	u.failed.Store(&failed)
	// Of a store that writes nothing any more, one line is enough.
	cause := u.store.Capabilities().Halted
	halted := cause != nil && cause() != nil
	if !halted || !u.halted {
		u.log.Error("storageapi: last use of API keys not recorded", "keys", keys, "error", failed)
	}
	u.halted = halted
	return failed
}

// steps yields uses in steps, ordered by account and id: rows that are near each other in a
// store are written together, and in one order on all nodes, so that there is no deadlock. What a
// step is must not be kept.
func steps(pending map[string]*pendingUse) iter.Seq[[]KeyUse] {
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
	return func(yield func([]KeyUse) bool) {
		step := make([]KeyUse, 0, min(2*len(keys), useBatch))
		for i, key := range keys {
			for _, token := range key.use.tokens {
				step = append(step, KeyUse{key.use.account, key.id, token.hash, token.at()})
			}
			if last := i == len(keys)-1; len(step)+2 > useBatch || last { // a key has at most two
				if !yield(step) {
					return
				}
				step = step[:0]
			}
		}
	}
}

func (u *uses) writeStep(step []KeyUse) error {
	ctx, cancel := context.WithTimeout(context.Background(), useTimeout)
	defer cancel()
	return u.store.RecordKeyUse(ctx, step)
}

// pause waits, unless uses are to be closed or ctx ends: at most maxPause.
func (u *uses) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(min(d, maxPause))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-u.closing:
	case <-ctx.Done():
	}
}

func init() {
	testhook.WriteUses = func(service any) { _ = service.(*KeyService).WriteUses(context.Background()) }
}

// close writes what is pending, once, and records nothing from then on. A write under way
// goes on without pauses.
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
	_ = u.write(context.Background()) // which logs what it returns
}
