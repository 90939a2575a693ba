package simulation_test

import (
	"context"
	"net"
	"sync"
)

// pipes is a listener in memory: sockets do not work in a bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// An uplink is how one process reaches the receivers. When the process dies its
// connections do, too.
type uplink struct {
	mu    sync.Mutex
	dead  bool
	conns []net.Conn
}

// add keeps a connection, or closes it if the process is dead.
func (u *uplink) add(conn net.Conn) net.Conn {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.dead {
		_ = conn.Close()
	}
	u.conns = append(u.conns, conn)
	return conn
}

func (u *uplink) cut() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.dead = true
	for _, conn := range u.conns {
		_ = conn.Close()
	}
}
