package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	tellPause   = 20 * time.Millisecond // at least, between two notifications
	relistenMin = 100 * time.Millisecond
	relistenMax = 10 * time.Second
)

// A waker tells other nodes that something is due. A notification takes a lock that
// all of the server's share: so there is none for each event, and none in the host's
// transactions.
type waker struct {
	store   *Store
	telling atomic.Bool
}

func (w *waker) start(s *Store) { w.store = s }

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

// Wake implements [webhooks.Waker]. It uses one connection of the pool.
func (s *Store) Wake(ctx context.Context, wake func()) {
	if s.options.quiet {
		return
	}
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
	conn, err := s.pool.Acquire(ctx)
	s.steps.RUnlock()
	if err != nil {
		return false
	}
	own := conn.Hijack() // it listens, and nobody else is to get it
	defer func() { _ = own.Close(context.WithoutCancel(ctx)) }()
	if _, err := own.Exec(ctx, `listen `+pgx.Identifier{s.channel()}.Sanitize()); err != nil {
		return false
	}
	keys := s.options.keyCache
	keys.forgetAll() // what changed before it listened was not heard
	defer keys.forgetAll()
	wake() // also for what came before
	for {
		heard, err := own.WaitForNotification(ctx)
		if err != nil {
			return true
		}
		if !keys.hear(heard.Payload) {
			wake()
		}
	}
}
