package postgres_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
	"github.com/storageapi/storageapi/store/storetest"
)

// A lossyConn is cut at random while losses are enabled: either before a write reaches the server,
// or after the answer has arrived.
type lossyConn struct {
	net.Conn
	lossy *atomic.Bool
}

func (c *lossyConn) Write(b []byte) (int, error) {
	if c.lossy.Load() && rand.N(60) == 0 {
		_ = c.Close()
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(b)
}

func (c *lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.lossy.Load() && rand.N(30) == 0 {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

// openThrough opens a store on a host's pool. The pool passes each new connection to through and
// uses the result. If through returns nil, connecting fails.
func openThrough(t *testing.T, schema postgres.Option, through func(net.Conn) net.Conn) *postgres.Store {
	t.Helper()
	config := pool(t).Config()
	config.MaxConns = 6
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if made := through(conn); made != nil {
			return made, nil
		}
		_ = conn.Close()
		return nil, errors.New("no connection")
	}
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	s, err := postgres.New(t.Context(), p, schema)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFailingCommits loses connections while steps are running, including during commits.
func TestFailingCommits(t *testing.T) {
	t.Parallel()
	storetest.RunFailing(t, func(t *testing.T) storetest.FailingStore {
		schema, lossy := inSchema(t), new(atomic.Bool)
		s := openThrough(t, schema, func(conn net.Conn) net.Conn { return &lossyConn{conn, lossy} })
		p := s.Pool()
		return storetest.FailingStore{
			Store: s,
			Fail:  func() { lossy.Store(true) },
			Mend: func() store.Store {
				lossy.Store(false)
				p.Reset() // closes idle connections that were cut
				if _, err := s.KeyByHash(t.Context(), driver.Hash{}); errors.Is(err, store.ErrClosed) {
					return open(t, schema)
				}
				return s
			},
		}
	})
}

// A cutConn is cut at its first write after the cut is enabled.
type cutConn struct {
	net.Conn
	cut *atomic.Bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.cut.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(b)
}

// Close releases the node's shards even if it loses a connection meanwhile, so that another node
// can claim the pending deliveries at once.
func TestClose_ConnectionLost_ReleasesShards(t *testing.T) {
	option, cut := inSchema(t), new(atomic.Bool)
	s := openThrough(t, option, func(conn net.Conn) net.Conn { return &cutConn{conn, cut} })
	endpoints(t, s, 1)
	publishOne(t, s, "evt")
	if n := len(claimed(t, s)); n != 1 {
		t.Fatalf("claimed %d", n)
	}
	cut.Store(true)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(claimed(t, open(t, option))); n != 1 {
		t.Errorf("another node claimed %d, want 1", n)
	}
}

// While Close waits for a step, other calls return ErrClosed at once.
func TestClose_WaitsForStep_OtherCallsReturnErrClosed(t *testing.T) {
	s := open(t, inSchema(t))
	key := driver.Key{ID: "key", Account: "acct", Hash: driver.Hash{Sum: [32]byte{1}}}
	if err := s.CreateKey(t.Context(), key, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	under, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		ended <- s.DeleteKey(t.Context(), "acct", "key", func(driver.Key) error { close(under); <-release; return nil }, audit.Entry{})
	}()
	<-under
	go func() { ended <- s.Close() }()
	refused := make(chan error)
	go func() {
		for {
			if _, err := s.KeyByHash(t.Context(), key.Hash); err != nil {
				refused <- err
				return
			}
		}
	}()
	select {
	case err := <-refused:
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("KeyByHash = %v, want ErrClosed", err)
		}
	case <-time.After(time.Minute):
		t.Error("a call waits for Close, and Close for a step")
	}
	close(release)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
