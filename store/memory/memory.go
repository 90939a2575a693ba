// Package memory is a [store.Store] without a disk, for tests and small tools:
//
//	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
//
// What it keeps is gone when the process ends; until then it forgets only what is deleted.
// Package storetest proves it as it proves every other store, so what works on it works
// on them.
//
// # Time
//
// Due times go by time.Now, so inside a bubble of testing/synctest
// they go by the bubble's clock.
package memory

import (
	"context"
	"sync"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/capability"
	"github.com/storageapi/storageapi/webhooks"
)

var _ store.Store = (*Store)(nil)

// A Store keeps everything in memory. It implements [store.Store].
type Store struct {
	mu     sync.Mutex // held by every step
	closed bool

	keys   table[key]
	byHash map[apikeys.Hash]*key // current and previous hashes, never the zero one

	keyRequests, webhookRequests requests

	webhooks   table[webhooks.Webhook]
	webhookIDs map[string]bool    // of all accounts
	events     map[ref]*event     // by id
	log        []*event           // in the order they were stored
	forgotten  map[forgotten]bool // of log, those whose id is not known any more
	deliveries map[webhooks.DeliveryRef]*delivery
	recoveries []*recovery // those that are not done in turn
	cursors    cursor.Key  // hides the numbers of events
	alerts     map[ref]*alert
	dedupKeys  map[dedupKey]bool
	notices    noticeLog
	fileScan   []byte // the state of the scan for expiring files
	lastSeq    uint64
	published  time.Time // when the last event was
	clock      clock.Clock

	feed       webhooks.Scheduler // nil: steps are not reported
	delivering chan struct{}      // full during Deliver
	closing    chan struct{}      // closed by Close
}

// New returns an empty store.
func New() *Store {
	s := &Store{
		keys:       make(table[key]),
		byHash:     make(map[apikeys.Hash]*key),
		webhooks:   make(table[webhooks.Webhook]),
		webhookIDs: make(map[string]bool),
		events:     make(map[ref]*event),
		deliveries: make(map[webhooks.DeliveryRef]*delivery),
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

// Close waits for the step under way. From then on every method returns
// [store.ErrClosed].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	return nil
}

// Capabilities implements [store.Store]: there are none.
func (s *Store) Capabilities() capability.Set { return capability.Set{} }

// begin starts a step, which s.mu.Unlock ends; or it returns why there must be
// none.
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

// lock locks s.mu, unless ctx ends before: a callback may hold it for long.
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

// stored returns a time as every store gives it back: in UTC, to the
// millisecond.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
