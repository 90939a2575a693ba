// Package pipenet is a network in memory: for package cli, which calls a handler in the same process,
// and for tests, because sockets do not work in testing/synctest bubbles.
package pipenet

import (
	"context"
	"net"
	"sync"
)

// A Listener is a [net.Listener] that can be reached only through its Dial method.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Listen returns a Listener.
func Listen() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects to the Listener. It ignores the address.
func (l *Listener) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Accept returns the next connection, or [net.ErrClosed].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Dial. Connections stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns a fixed address.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }
