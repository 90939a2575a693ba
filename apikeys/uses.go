package apikeys

import (
	"cmp"
	"context"
	"encoding/binary"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	useInterval = time.Minute // between two writes of what one key's last use was
	maxUses     = 1 << 16     // keys remembered between two writes: bounds memory
	useBatch    = 512         // uses per store call: keeps its write steps short
	useTimeout  = 10 * time.Second
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
	halted  bool // it was logged that the store writes nothing any more

	writing sync.Mutex // held during a write: one at a time, and Close waits
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
		u.timer = time.AfterFunc(useInterval, u.write)
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

// write writes what is pending. What the store refuses is pending again.
func (u *uses) write() {
	u.writing.Lock()
	defer u.writing.Unlock()

	u.mu.Lock()
	pending := u.pending
	u.pending, u.written, u.timer = nil, pending, nil
	u.mu.Unlock()

	batch := make([]KeyUse, 0, min(2*len(pending), useBatch))
	flush := func() {
		ctx, cancel := context.WithTimeout(context.Background(), useTimeout)
		defer cancel()
		if err := u.store.RecordKeyUse(ctx, batch); err != nil {
			// Of a store that writes nothing any more, one line is enough.
			halter, _ := u.store.(interface{ Halted() error })
			halted := halter != nil && halter.Halted() != nil
			if !halted || !u.halted {
				u.log.Error("storageapi: last use of API keys not recorded", "keys", len(batch), "error", err)
			}
			u.halted = halted
			for _, use := range batch {
				u.add(use.Account, use.ID, use.Hash, use.At.UnixMilli())
			}
		}
		batch = batch[:0]
	}
	for _, id := range slices.Sorted(maps.Keys(pending)) { // in one order on all nodes: no deadlock
		use := pending[id]
		for _, token := range use.tokens {
			if batch = append(batch, KeyUse{use.account, id, token.hash, token.at()}); len(batch) == useBatch {
				flush()
			}
		}
	}
	if len(batch) > 0 {
		flush()
	}
}

// close writes what is pending, once, and records nothing from then on.
func (u *uses) close() {
	u.mu.Lock()
	u.closed = true
	if u.timer != nil {
		u.timer.Stop()
	}
	u.mu.Unlock()
	u.write()
}
