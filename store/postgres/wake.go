package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	tellPause   = 20 * time.Millisecond // at least, between two notifications
	relistenMin = 100 * time.Millisecond
	relistenMax = 10 * time.Second
	askEvery    = 20 * time.Second // whether who listens is still connected
)

// A waker tells other nodes that something is due. A notification takes a lock that
// all of the server's share: so there is none for each event, and none in the host's
// transactions.
type waker struct {
	store   *Store
	telling atomic.Bool
	ask     time.Duration  // askEvery
	group   sync.WaitGroup // those who listen
}

func (w *waker) start(s *Store) { w.store, w.ask = s, askEvery }

// channel is what nodes on this schema listen to.
func (s *Store) channel() string { return "storageapi_" + s.options.schema }

// tell notifies other nodes soon. What is not told is found by polling.
func (w *waker) tell() {
	if w.store.options.quiet || !w.telling.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(tellPause, func() {
		w.telling.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		_ = w.store.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			_, err := conn.Exec(ctx, `select pg_notify($1, '')`, w.store.channel())
			return err
		})
	})
}

// owed is what a step returns that made deliveries owed, or failed: others are told.
func (s *Store) owed(deliveries int, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	if deliveries > 0 {
		s.waker.tell()
	}
	return deliveries, nil
}

// Wake implements [webhooks.Waker]. It uses one of the pool's connections all the time,
// or none if the pool has no other: then what others made due is found by polling.
func (s *Store) Wake(ctx context.Context, wake func()) {
	if s.options.quiet || s.pool.Stat().MaxConns() < 2 {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.publisher.ctx, cancel)() // when the store is closed
	for pause := relistenMin; ctx.Err() == nil; pause = min(2*pause, relistenMax) {
		if s.listen(ctx, wake) {
			pause = relistenMin
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// listen calls wake for each notification that something is due, and reports whether it got so far as to
// listen.
func (s *Store) listen(ctx context.Context, wake func()) (listened bool) {
	if s.begin(ctx) != nil {
		return false
	}
	s.waker.group.Add(1)
	defer s.waker.group.Done()
	s.steps.RUnlock()
	short, cancel := within(ctx, patience)
	defer cancel()
	conn, err := s.pool.Acquire(short)
	if err != nil {
		return false
	}
	defer conn.Release()
	own := conn.Conn()
	defer func() { // it listens, and nobody else is to get it
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		_ = own.Close(closing)
	}()
	if _, err := own.Exec(short, `listen `+pgx.Identifier{s.channel()}.Sanitize()); err != nil {
		return false
	}
	keys := s.options.keyCache
	keys.forgetAll() // what changed before it listened was not heard
	defer keys.forgetAll()
	wake() // also for what came before
	for {
		heard, err := hear(ctx, own, s.waker.ask)
		if err != nil {
			return true
		}
		if heard != nil && !keys.hear(heard.Payload) {
			wake()
		}
	}
}

// hear waits for a notification, and for a while only: then it asks whether the server
// is still there.
func hear(ctx context.Context, conn *pgx.Conn, ask time.Duration) (*pgconn.Notification, error) {
	waiting, cancel := context.WithTimeout(ctx, ask)
	defer cancel()
	heard, err := conn.WaitForNotification(waiting)
	if err == nil || waiting.Err() == nil || ctx.Err() != nil {
		return heard, err
	}
	asking, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return nil, conn.Ping(asking)
}
