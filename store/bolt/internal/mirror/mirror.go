// Package mirror caches rows of the file. These rules keep the cache valid:
//
//   - Before a commit can become visible, its steps mark each key that they change, by [Mirror.Set]
//     or [Mirror.Drop].
//   - While a key is marked, readers read the file. Later steps of the transaction see the value
//     that the marking step has set.
//   - When the transaction ends, its values are applied or, if it was undone, discarded, and the
//     marks are removed. If its ending is unknown, the values are discarded and the marks stay, so
//     that readers continue to read the marked keys from the file.
//   - A reader may offer a row that it has read, with the result of a call to [Mirror.Version] made
//     before its transaction began. The offer is ignored if a transaction that marked keys has
//     ended since that call, or if the key is marked.
//
// So a cached value is always the value that readers of the file see.
package mirror

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Options configure a [Mirror].
type Options[V any] struct {
	Max    int         // maximum weight of all values; 0 or less disables the cache
	Weight func(V) int // weight of a value; nil means that each value weighs 1
	// Number of shards, each with its own lock, for a mirror with many readers; 0 means 1. Max is
	// divided among them.
	Shards int
	Second bool // Fill stores a value only if its key was offered before
}

// A Mirror caches values by key. Only the steps of the running transaction may call InStep, Keep
// and the methods with a [Step] parameter. Only the writer may call End. One transaction runs at a
// time.
type Mirror[K comparable, V any] struct {
	options Options[V]
	seed    maphash.Seed
	shards  []shard[K, V]
	version atomic.Uint64 // number of transactions that marked keys and have ended
	marked  []K           // keys marked by the running transaction
}

// A Step is the current step of the writer.
type Step interface {
	MarkWritten() // the transaction is undone if the step fails
}

type shard[K comparable, V any] struct {
	mu      sync.RWMutex
	rows    map[K]*row[V]
	weight  int      // sum of the weights of the known values
	max     int      // maximum weight
	offered []uint32 // tags of keys that Fill got but did not store; indexed by hash
}

type row[V any] struct {
	value V
	known bool        // value is the value in the file
	used  atomic.Bool // whether used since evict examined it last
	mark  *mark[V]    // nil if the key is not marked
}

// A mark holds the value that the steps of the transaction see for a marked key.
type mark[V any] struct {
	value V
	known bool
}

// An Ending is the outcome of a transaction.
type Ending int

// The endings of a transaction.
const (
	Applied Ending = iota // readers of the file see the transaction
	Undone                // no effect
	// The transaction may be applied or undone, and this may still change. No transaction follows.
	Unknown
)

// New returns an empty Mirror.
func New[K comparable, V any](options Options[V]) *Mirror[K, V] {
	if options.Weight == nil {
		options.Weight = func(V) int { return 1 }
	}
	options.Max, options.Shards = max(options.Max, 0), max(options.Shards, 1)
	m := &Mirror[K, V]{options: options, seed: maphash.MakeSeed(), shards: make([]shard[K, V], options.Shards)}
	for i := range m.shards {
		m.shards[i].rows = make(map[K]*row[V])
		m.shards[i].max = (options.Max + i) / options.Shards
		if options.Second {
			m.shards[i].offered = make([]uint32, m.shards[i].max)
		}
	}
	return m
}

// shard returns the shard of a key, and a hash of the key whose bits are independent of the shard.
func (m *Mirror[K, V]) shard(key K) (*shard[K, V], uint64) {
	hash := maphash.Comparable(m.seed, key)
	n := uint64(len(m.shards))
	return &m.shards[hash%n], hash / n
}

// Get returns the value that readers of the file see for a key. ok is false if the value is not
// cached, or the key is marked.
func (m *Mirror[K, V]) Get(key K) (value V, ok bool) {
	s, _ := m.shard(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.rows[key]
	if r == nil || r.mark != nil || !r.known {
		return value, false
	}
	if !r.used.Load() {
		r.used.Store(true)
	}
	return r.value, true
}

// Version returns a version to pass to Fill. Call it before the transaction that reads the row
// begins.
func (m *Mirror[K, V]) Version() uint64 { return m.version.Load() }

// Fill offers a value that a reader has read. Fill ignores it if the value may have changed since
// the call to Version.
func (m *Mirror[K, V]) Fill(key K, value V, version uint64) {
	s, hash := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[key]
	if m.version.Load() != version || r != nil && (r.mark != nil || r.known) || s.max == 0 {
		return
	}
	if m.options.Second {
		slot, tag := &s.offered[hash%uint64(len(s.offered))], uint32(hash>>32)
		if *slot != tag {
			*slot = tag
			return
		}
	}
	m.put(s, key, value)
}

// InStep returns the value that the steps of the transaction see for a key, if it is cached.
func (m *Mirror[K, V]) InStep(key K) (value V, ok bool) {
	s, _ := m.shard(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch r := s.rows[key]; {
	case r == nil:
		return value, false
	case r.mark != nil:
		return r.mark.value, r.mark.known
	default:
		r.used.Store(true)
		return r.value, r.known
	}
}

// Keep caches a value that a step has read in its transaction. If the step has written the value,
// it must mark the key before it calls Keep.
func (m *Mirror[K, V]) Keep(key K, value V) {
	s, _ := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rows[key]; r != nil && r.mark != nil {
		r.mark.value, r.mark.known = value, true
		return
	}
	m.put(s, key, value)
}

// Set marks a key. When the transaction is applied, the key gets the value. Call Set before the
// step writes.
func (m *Mirror[K, V]) Set(by Step, key K, value V) { m.mark(by, key, mark[V]{value, true}) }

// Drop marks a key and removes its value. Call Drop before the step writes.
func (m *Mirror[K, V]) Drop(by Step, key K) { m.mark(by, key, mark[V]{}) }

func (m *Mirror[K, V]) mark(by Step, key K, as mark[V]) {
	by.MarkWritten()
	s, _ := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[key]
	if r == nil {
		r = new(row[V])
		s.rows[key] = r
	}
	if r.mark == nil {
		m.marked = append(m.marked, key)
	}
	r.mark = &as
}

// End ends the transaction. Call it before the callers of the steps get their results, and before
// the next transaction begins.
func (m *Mirror[K, V]) End(ending Ending) {
	if len(m.marked) == 0 {
		return
	}
	m.version.Add(1) // must be first: a fill that finds its key unmarked must see the new version
	for _, key := range m.marked {
		m.end(key, ending)
	}
	m.marked = nil
}

func (m *Mirror[K, V]) end(key K, ending Ending) {
	s, _ := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[key]
	if ending == Unknown {
		m.drop(s, key, r)
		return
	}
	set := *r.mark
	r.mark = nil
	if ending == Applied && set.known {
		m.put(s, key, set.value)
	} else if ending == Applied || !r.known {
		m.drop(s, key, r)
	}
}

// Clear removes all values. Fills by readers whose transactions are in progress have no effect from
// then on. No transaction of the writer may follow.
func (m *Mirror[K, V]) Clear() {
	m.version.Add(1)
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		s.rows, s.weight = make(map[K]*row[V]), 0
		s.mu.Unlock()
	}
}

// put caches the value of an unmarked key, and evicts other values if necessary. s.mu must be
// held.
func (m *Mirror[K, V]) put(s *shard[K, V], key K, value V) {
	if old := s.rows[key]; old != nil {
		m.drop(s, key, old)
	}
	weight := m.options.Weight(value)
	if weight > s.max {
		return
	}
	m.evict(s, s.max-weight)
	s.rows[key] = &row[V]{value: value, known: true}
	s.weight += weight
}

// drop removes the value of a row, and the row itself unless the key is marked. s.mu must be held.
func (m *Mirror[K, V]) drop(s *shard[K, V], key K, r *row[V]) {
	if r.known {
		s.weight -= m.options.Weight(r.value)
	}
	var none V
	if r.value, r.known = none, false; r.mark == nil {
		delete(s.rows, key)
	}
}

// evict removes values until their weight is at most limit. It first removes values that were not
// used since evict last examined them. s.mu must be held.
func (m *Mirror[K, V]) evict(s *shard[K, V], limit int) {
	for s.weight > limit {
		for key, r := range s.rows {
			if s.weight <= limit {
				return
			}
			if r.known && !r.used.Swap(false) {
				m.drop(s, key, r)
			}
		}
	}
}
