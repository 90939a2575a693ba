// Package mirror keeps rows of the file in memory, under one rule of invalidation:
//
//   - A step of the writer marks a key before its commit can be visible: [Mirror.Set], [Mirror.Drop].
//   - While a key is marked, readers read the file. Later steps see what the marking step has set.
//   - The end of the transaction applies what was set, lifts the marks if the transaction was undone, or
//     forgets the values if its outcome is unknown: then the marks stay, and those keys are read from the file.
//   - A fill, which is a row that a reader has read, carries the [Mirror.Version] from before its transaction
//     began. It is dropped if a transaction that marked keys has ended since, or if its key is marked.
//
// So a value in memory is the one that readers of the file see.
package mirror

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Options say what a [Mirror] holds.
type Options[V any] struct {
	Max    int         // bounds the weight of all values; 0 and less: no value is held
	Weight func(V) int // of a value; nil: each weighs 1
	Shards int         // locks, for a mirror that many goroutines read; 0 is 1. Max is divided among them
	Second bool        // Fill admits a key when it is offered for the second time
}

// A Mirror holds values by key. One transaction runs at a time; its steps are the only callers of the methods that
// take a [Step], of InStep and of Keep, and its writer the only one of End.
type Mirror[K comparable, V any] struct {
	options Options[V]
	seed    maphash.Seed
	shards  []shard[K, V]
	version atomic.Uint64 // transactions that marked keys and have ended
	marked  []K           // by the transaction under way
}

// A Step is a step of the writer that is running.
type Step interface {
	MarkWritten() // if the step fails, its transaction is undone
}

type shard[K comparable, V any] struct {
	mu      sync.RWMutex
	rows    map[K]*row[V]
	weight  int      // of the values that are known
	max     int      // of it
	offered []uint32 // tags of the keys that Fill did not admit, by hash
}

type row[V any] struct {
	value V
	known bool        // value is that of the file
	used  atomic.Bool // since evict looked
	mark  *mark[V]    // nil: the key is not marked
}

// A mark has what the steps of the transaction have made of a row.
type mark[V any] struct {
	value V
	known bool
}

// An Outcome is what became of a transaction.
type Outcome int

// The outcomes of a transaction.
const (
	Applied Outcome = iota // readers of the file see it
	Undone                 // it is as if it had not been
	Unknown                // either, and the file may change yet; no transaction follows
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

// shard returns the shard of a key and a hash of it, of which the lower bits are not those that chose the shard.
func (m *Mirror[K, V]) shard(key K) (*shard[K, V], uint64) {
	hash := maphash.Comparable(m.seed, key)
	n := uint64(len(m.shards))
	return &m.shards[hash%n], hash / n
}

// Get returns the value of a key as readers of the file see it. If it is not held, or the key is marked, ok is false.
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

// Version returns the version for Fill. It must be taken before the transaction begins that reads the row.
func (m *Mirror[K, V]) Version() uint64 { return m.version.Load() }

// Fill offers a value that a reader has read, unless it may have changed since version.
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

// InStep returns the value of a key as steps of the transaction see it, if it is held.
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

// Keep holds a value that a step has read in its transaction. Each step that has written it must have marked the key.
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

// Set marks a key, which will have that value once the transaction is applied. It is called before the step writes.
func (m *Mirror[K, V]) Set(by Step, key K, value V) { m.mark(by, key, mark[V]{value, true}) }

// Drop marks a key, whose value will have to be read. It is called before the step writes.
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

// End ends the transaction. It is called before callers of its steps have their answers, and before the next one begins.
func (m *Mirror[K, V]) End(outcome Outcome) {
	if len(m.marked) == 0 {
		return
	}
	m.version.Add(1) // first: a fill that finds its key not marked any longer finds this
	for _, key := range m.marked {
		m.end(key, outcome)
	}
	m.marked = nil
}

func (m *Mirror[K, V]) end(key K, outcome Outcome) {
	s, _ := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[key]
	if outcome == Unknown {
		m.drop(s, key, r)
		return
	}
	set := *r.mark
	r.mark = nil
	if outcome == Applied && set.known {
		m.put(s, key, set.value)
	} else if outcome == Applied || !r.known {
		m.drop(s, key, r)
	}
}

// Clear drops everything, and all fills that have begun. No transaction may follow.
func (m *Mirror[K, V]) Clear() {
	m.version.Add(1)
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		s.rows, s.weight = make(map[K]*row[V]), 0
		s.mu.Unlock()
	}
}

// put holds the value of a key that is not marked, for which others may have to go. s.mu is held.
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

// drop drops the value of a row, and the row unless its key is marked. s.mu is held.
func (m *Mirror[K, V]) drop(s *shard[K, V], key K, r *row[V]) {
	if r.known {
		s.weight -= m.options.Weight(r.value)
	}
	var none V
	if r.value, r.known = none, false; r.mark == nil {
		delete(s.rows, key)
	}
}

// evict drops values until their weight is at most limit: values that were used since it looked last after others. s.mu is held.
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
