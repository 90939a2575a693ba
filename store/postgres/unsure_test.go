package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// Once enabled, a deafConn is cut when the next answer arrives.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf.Load() {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// The test loses the answers to batches that were stored, and then all connections. A publisher
// waits for a connection until its context ends. It must not get the context's error, which would
// mean that nothing was stored.
func TestPublish_OutcomeUnknown_DoesNotReturnContextError(t *testing.T) {
	schema, deaf, over := inSchema(t), new(atomic.Bool), make(chan struct{})
	s := openThrough(t, schema, func(conn net.Conn) net.Conn {
		if deaf.Load() {
			<-over
			return nil
		}
		return &deafConn{conn, deaf}
	})
	defer s.Close()
	var conns []*pgxpool.Conn
	for range s.Pool().Config().MaxConns {
		conn, err := s.Pool().Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Release()
	}

	const publishers = 60
	errs := make([]error, publishers)
	publish := func(ctx context.Context, event string) {
		var all sync.WaitGroup
		for i := range publishers {
			all.Go(func() {
				_, errs[i] = s.Enqueue(ctx, driver.EncodedEvent{ID: fmt.Sprint(event, i), Account: "acct", Type: alerts.TypeBalanceLow, Timestamp: time.Now(), Body: []byte("{}")})
			})
		}
		all.Wait()
	}
	for i := range 10 { // warm up: prepare the statements
		publish(t.Context(), fmt.Sprint("before", i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	deaf.Store(true)
	publish(ctx, "event")
	close(over)

	look := open(t, schema)
	stored := 0
	for i, err := range errs {
		_, missing := look.EventDeliveries(t.Context(), "acct", fmt.Sprint("event", i))
		if missing == nil {
			stored++
		}
		if err != nil && !errors.Is(err, auth.ErrInterrupted) && !errors.Is(err, auth.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("event %d: %v, want that it was interrupted", i, err)
		}
		refused := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, store.ErrClosed)
		switch {
		case err == nil && missing != nil:
			t.Errorf("event %d is said to be stored: %v", i, missing)
		case refused && missing == nil:
			t.Errorf("event %d is stored, and said not to be: %v", i, err)
		}
	}
	if stored == 0 {
		t.Error("nothing was stored whose answer was lost")
	}
}
