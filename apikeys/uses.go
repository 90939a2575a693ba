package apikeys

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash/maphash"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/driver"
)

const (
	useInterval = time.Minute // between two writes
	maxUses     = 1 << 16     // maximum keys with pending uses; bounds memory
	maxRefusals = 1 << 16     // maximum pending refusals of all keys; bounds memory
	keyRefusals = 200         // maximum pending refusals of a key, of which the latest 100 are written
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

	// seen lets frequent uses skip the lock; see isNew.
	seen [1 << 16]atomic.Uint64
	seed maphash.Seed

	mu      sync.Mutex
	pending map[string]*pendingUse // by key ID
	written map[string]*pendingUse // uses in the latest write
	refused int                    // pending refusals
	writes  atomic.Uint32          // number of writes so far
	timer   *time.Timer            // set while uses are pending
	closed  bool
	closing chan struct{} // closed when closed is set
	halted  bool          // the log already reports that the store is halted

	failed atomic.Pointer[error] // error of the latest write that had uses to write

	writing chan struct{} // semaphore of size 1: serializes writes, and Close waits for it
}

// A pendingUse holds the uses of a key's tokens and the key's activity. If more than two tokens of
// the key were used since the last write, it keeps the two that were used last.
type pendingUse struct {
	account  string
	tokens   []tokenUse // at most two
	activity driver.KeyActivity
	refused  []auth.RefusedRequest // not yet part of activity
}

type tokenUse struct {
	hash driver.Hash
	ms   int64 // Unix milliseconds
}

func (t *tokenUse) at() time.Time { return time.UnixMilli(t.ms).UTC() }

// all returns the activity, including refusals.
func (p *pendingUse) all() driver.KeyActivity {
	if len(p.refused) == 0 {
		return p.activity
	}
	return p.activity.Add(driver.ActivityRefused(p.refused...), true)
}

// add records a use.
func (p *pendingUse) add(use *driver.KeyUse) {
	p.activity = p.activity.Add(use.Activity, true)
	if use.Hash.IsZero() {
		return
	}
	ms := use.At.UnixMilli()
	for i := range p.tokens {
		if p.tokens[i].hash == use.Hash {
			p.tokens[i].ms = max(p.tokens[i].ms, ms)
			return
		}
	}
	if p.tokens = append(p.tokens, tokenUse{use.Hash, ms}); len(p.tokens) > 2 {
		slices.SortFunc(p.tokens, func(a, b tokenUse) int { return cmp.Compare(b.ms, a.ms) })
		p.tokens = p.tokens[:2]
	}
}

// isNew reports whether no use with this hash and stamp has been recorded. A hash's slot in seen
// holds 48 bits of the hash and the stamp of the last use.
func (u *uses) isNew(hash uint64, stamp uint16) bool {
	slot, note := &u.seen[hash>>48], hash<<16|uint64(stamp)
	if slot.Load() == note {
		return false
	}
	slot.Store(note)
	return true
}

// record remembers a use of the key's token with the given hash from a client address, at most once
// per second, token and address.
func (u *uses) record(key *Key, hash driver.Hash, address string, at time.Time) {
	sum := binary.LittleEndian.Uint64(hash.Sum[:])
	if address != "" {
		sum ^= maphash.String(u.seed, address)
	}
	if u.isNew(sum, uint16(at.Unix())) {
		activity := driver.ActivityFrom(auth.ParseAddress(address), at)
		u.add(&driver.KeyUse{Account: key.Account, ID: key.ID, Hash: hash, At: at, Activity: activity})
	}
}

// add remembers a use and refusals for the next write. Once maxUses keys or maxRefusals are pending,
// it ignores further ones.
func (u *uses) add(use *driver.KeyUse, refused ...auth.RefusedRequest) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.refused+len(refused) > maxRefusals {
		if refused = nil; use.Hash.IsZero() && use.Activity == "" {
			return
		}
	}
	pending := u.pending[use.ID]
	if pending == nil {
		if u.closed || len(u.pending) == maxUses {
			return
		}
		if u.pending == nil {
			u.pending = make(map[string]*pendingUse)
		}
		pending = &pendingUse{account: use.Account}
		u.pending[use.ID] = pending
	}
	pending.add(use)
	u.refused += len(refused)
	if pending.refused = append(pending.refused, refused...); len(pending.refused) > keyRefusals {
		// Refusals of a failed write are appended after newer ones, so sort them by time.
		slices.SortStableFunc(pending.refused, func(a, b auth.RefusedRequest) int { return a.At.Compare(b.At) })
		drop := len(pending.refused) - keyRefusals/2
		pending.refused = slices.Delete(pending.refused, 0, drop)
		u.refused -= drop
	}
	if u.timer == nil && !u.closed {
		u.timer = time.AfterFunc(useInterval, func() { _ = u.write(context.Background()) })
	}
}

// unwritten holds the uses in the latest write, and the uses that were pending at one time. Both maps
// are by key ID.
type unwritten [2]map[string]*pendingUse

// unwritten returns the uses that a key read after this call may still lack. Later uses may be
// added to the returned map of pending uses.
func (u *uses) unwritten() unwritten {
	u.mu.Lock()
	defer u.mu.Unlock()
	return unwritten{u.written, u.pending}
}

// overlay adds the uses in before, which were unwritten when the key was read, to its LastUsedAt,
// PreviousUsedAt and Activity. This keeps the times from appearing to go back during a write.
func (u *uses) overlay(key *Key, before unwritten) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, uses := range before {
		use := uses[key.ID]
		if use == nil {
			continue
		}
		latest := true
		for _, token := range use.tokens {
			latest = !token.at().Before(key.LastUsedAt)
			key.LastUsedAt = later(key.LastUsedAt, token.at())
			if token.hash == key.Previous {
				key.PreviousUsedAt = later(key.PreviousUsedAt, token.at())
			}
		}
		key.Activity = key.Activity.Add(use.all(), latest)
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
	u.pending, u.written, u.timer, u.refused = nil, pending, nil, 0
	u.writes.Add(1)
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
		for i, use := range step {
			again := pending[use.ID]
			use.Activity = again.activity
			if i > 0 && step[i-1].ID == use.ID { // the use of the key's other value
				u.add(&use)
				continue
			}
			u.add(&use, again.refused...)
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
// one step. All nodes use the same order, which prevents deadlocks. The yielded slice is reused and
// must not be kept.
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
			activity := key.use.all()
			if len(key.use.tokens) == 0 {
				step = append(step, driver.KeyUse{Account: key.use.account, ID: key.id, Activity: activity})
			}
			for _, token := range key.use.tokens {
				step = append(step, driver.KeyUse{Account: key.use.account, ID: key.id, Hash: token.hash, At: token.at(), Activity: activity})
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
