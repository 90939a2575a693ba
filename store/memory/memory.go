// Package memory is a [store.Store] without a disk, for tests and small tools:
//
//	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
//
// All data is lost when the process ends; until then only deletions and purges remove data. Package
// storetest tests this store like every other one, so code that works on it works on the others.
//
// # Time
//
// Due times follow time.Now, and so the bubble's clock in a bubble of testing/synctest.
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

// A Store keeps everything in memory. It implements [store.Store].
type Store struct {
	mu     sync.Mutex // held during every step
	closed bool

	keys   table[key]
	byHash map[driver.Hash]*key // current and previous hashes, without the zero hash

	keyRequests, webhookRequests requests

	webhooks   table[driver.Webhook]
	webhookIDs map[string]bool    // of all accounts
	events     map[ref]*event     // by ID
	log        []*event           // in the order of storing
	forgotten  map[forgotten]bool // events in log whose ID is no longer known
	deliveries map[driver.DeliveryRef]*delivery
	recoveries []*recovery // unfinished ones in round-robin order
	cursors    cursor.Key  // encrypts event numbers in cursors
	alerts     map[ref]*alert
	dedupKeys  map[dedupKey]bool
	entries    auditLog
	scanState  []byte // see [driver.AlertStore]
	lastSeq    uint64
	published  time.Time // time of the last publication
	clock      clock.Clock

	feed       driver.Scheduler // receives steps; nil: none
	delivering chan struct{}    // full during Deliver
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
	s.clock.Watch()
	return s
}

// Close waits for the current step. From then on every method returns [store.ErrClosed].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	return nil
}

// Capabilities implements [store.Store]: this store has none.
func (s *Store) Capabilities() capability.Set { return capability.Set{} }

// begin starts a step, which ends with s.mu.Unlock, or returns why it must not start.
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

// lock locks s.mu unless ctx ends first: a callback may hold the lock for long.
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

// stored returns a time as stores return it: in UTC, truncated to milliseconds.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
