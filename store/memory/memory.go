// Package memory provides a [store.Store] that keeps all data in memory, for tests and small tools:
//
//	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
//
// All data is lost when the process ends; until then only deletions and purges remove data. Package
// storetest tests this store like every other store, so code that works with this store works with
// the others.
//
// # Time
//
// Due times follow time.Now, which is the fake clock inside a testing/synctest bubble.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/store/driver"
)

var _ store.Store = (*Store)(nil)

// A Store keeps all data in memory. It implements [store.Store].
type Store struct {
	mu     sync.Mutex // held during every step
	closed bool

	keys   table[key]
	byHash map[driver.Hash]*key // by current and by previous hash, except the zero hash

	keyRequests, webhookRequests requests

	webhooks   table[driver.Webhook]
	webhookIDs map[string]bool    // IDs of the webhooks of all accounts
	events     map[ref]*event     // by ID
	log        []*event           // in the order in which they were stored
	forgotten  map[forgotten]bool // events in log whose ID is no longer known
	deliveries map[driver.DeliveryRef]*delivery
	recoveries []*recovery // the unfinished recoveries are in round-robin order
	cursors    cursor.Key  // encrypts event numbers in cursors
	alerts     map[ref]*alert
	dedupKeys  map[dedupKey]bool
	entries    auditLog
	scanState  []byte // see [driver.AlertStore.UpdateScan]
	lastSeq    uint64
	published  time.Time // time of the last publication
	clock      clock.Clock

	feed       driver.Scheduler // the scheduler of the running Deliver; nil if there is none
	delivering chan struct{}    // full while Deliver runs
	closing    chan struct{}    // closed by Close
}

// New returns an empty store.
func New() *Store {
	s := &Store{
		keys:       make(table[key]),
		byHash:     make(map[driver.Hash]*key),
		webhooks:   make(table[driver.Webhook]),
		webhookIDs: make(map[string]bool),
		events:     make(map[ref]*event),
		deliveries: make(map[driver.DeliveryRef]*delivery),
		alerts:     make(map[ref]*alert),
		dedupKeys:  make(map[dedupKey]bool),
		forgotten:  make(map[forgotten]bool),
		cursors:    cursor.NewKey(),
		delivering: make(chan struct{}, 1),
		closing:    make(chan struct{}),
	}
	s.keyRequests, s.webhookRequests = make(requests), make(requests)
	s.clock.Watch()
	return s
}

// Close waits for the current step to end. After Close every method returns [store.ErrClosed].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	return nil
}

// Capabilities implements [store.Store]. This store has no optional capabilities.
func (s *Store) Capabilities() capability.Set { return capability.Set{} }

// begin locks s.mu for a step, which must end with s.mu.Unlock. It returns an error, without the
// lock, if ctx is done or the store is closed.
func (s *Store) begin(ctx context.Context) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	err := ctx.Err()
	if s.closed {
		err = store.ErrClosed
	}
	if err != nil {
		s.mu.Unlock()
	}
	return err
}

// lock locks s.mu. It returns an error if ctx ends first: a callback may hold the lock for a long
// time.
func (s *Store) lock(ctx context.Context) error {
	if s.mu.TryLock() {
		return nil
	}
	if ctx.Done() == nil {
		s.mu.Lock()
		return nil
	}
	locked := make(chan struct{})
	go func() {
		s.mu.Lock()
		select {
		case locked <- struct{}{}:
		case <-ctx.Done():
			s.mu.Unlock()
		}
	}()
	select {
	case <-locked:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stored returns t in UTC, truncated to milliseconds, as stores return times.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
