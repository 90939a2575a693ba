package postgres_test

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// A relay is a loopback port that forwards to the server. While it is silent, it accepts
// connections and data but forwards nothing, so that neither side notices.
type relay struct {
	listener net.Listener
	network  string
	address  string

	mu    sync.Mutex
	mute  bool    // whether new connections are silent
	lines []*line // all lines, including closed ones
	group sync.WaitGroup
}

// A line is a connection through a relay.
type line struct {
	relay *relay
	ends  [2]net.Conn

	mu     sync.Mutex
	silent bool
}

func newRelay(t testing.TB) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := pool(t).Config().ConnConfig
	r := &relay{listener: listener}
	r.network, r.address = pgconn.NetworkAddress(config.Host, config.Port)
	r.group.Go(r.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		r.mu.Lock()
		for _, l := range r.lines {
			l.close()
		}
		r.mu.Unlock()
		r.group.Wait()
	})
	return r
}

// dsn returns a connection string that connects through the relay.
func (r *relay) dsn(t testing.TB, more string) string {
	config := pool(t).Config().ConnConfig
	return fmt.Sprintf("host=127.0.0.1 port=%d user=%s password='%s' dbname=%s sslmode=disable %s",
		r.listener.Addr().(*net.TCPAddr).Port, config.User, config.Password, config.Database, more)
}

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(r.network, r.address)
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &line{relay: r, ends: [2]net.Conn{client, server}}
		r.mu.Lock()
		l.silent = r.mute
		r.lines = append(r.lines, l)
		r.mu.Unlock()
		for i := range l.ends {
			r.group.Go(func() { l.pass(l.ends[i], l.ends[1-i]) })
		}
	}
}

// pass forwards data until one end closes, and then closes the other end, unless the line is
// silent.
func (l *line) pass(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !l.isSilent() {
			if err == nil {
				_, err = to.Write(buffer[:n])
			}
			if err != nil {
				l.close()
			}
		}
		if err != nil {
			_, _ = io.Copy(io.Discard, from)
			return
		}
	}
}

func (l *line) isSilent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

func (l *line) close() {
	for _, end := range l.ends {
		_ = end.Close()
	}
}

// silence makes all current connections silent and, if mute is set, also new ones.
func (r *relay) silence(mute bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mute = mute
	for _, l := range r.lines {
		l.mu.Lock()
		l.silent = true
		l.mu.Unlock()
	}
}

// open lets new connections pass again.
func (r *relay) open() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mute = false
}
