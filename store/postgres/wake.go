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
	notifyPause = 20 * time.Millisecond // at least, between two notifications
	relistenMin = 100 * time.Millisecond
	relistenMax = 10 * time.Second
	askEvery    = 20 * time.Second // between checks of the connection that listens
)

// A waker notifies other nodes that deliveries are due. A notification takes a lock of the
// whole server, so there is not one for each event, and none in the host's transactions.
type waker struct {
	store     *Store
	notifying atomic.Bool
	ask       time.Duration  // askEvery
	group     sync.WaitGroup // the goroutines that listen
}

func (w *waker) start(s *Store) { w.store, w.ask = s, askEvery }

// channel is the channel of the nodes on this schema.
func (s *Store) channel() string { return "storageapi_" + s.options.schema }

// notify notifies other nodes soon. They find by polling what they are not notified of.
func (w *waker) notify() {
	if w.store.options.quiet || !w.notifying.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(notifyPause, func() {
		w.notifying.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), grace)
		defer cancel()
		_ = w.store.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
			_, err := conn.Exec(ctx, `select pg_notify($1, '')`, w.store.channel())
			return err
		})
	})
}

// notified returns the result of a step, and notifies other nodes of new deliveries.
func (s *Store) notified(deliveries int, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	if deliveries > 0 {
		s.waker.notify()
	}
	return deliveries, nil
}

// Wake implements [webhooks.Waker]. It keeps one of the pool's connections in use, unless
// the pool has only one: then what other nodes enqueue is found by polling.
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

// listen calls wake for each notification of due deliveries, and reports whether it
// listened at all.
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
	defer func() { // it listens, so it must not return to the pool
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		_ = own.Close(closing)
	}()
	if _, err := own.Exec(short, `listen `+pgx.Identifier{s.channel()}.Sanitize()); err != nil {
		return false
	}
	keys := s.options.keyCache
	keys.forgetAll() // changes before it listened were missed
	defer keys.forgetAll()
	wake() // for what came before
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

// hear waits for a notification. After a while without one it checks the connection.
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
