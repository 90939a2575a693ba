package webhooks

import (
	"net"
	"syscall"
)

// A wire is what a connection goes over, beneath TLS.
type wire struct {
	net.Conn
	raw syscall.RawConn // nil where there is none

	// ask is what the next read does, once, if nothing has come: before it waits.
	ask func() error

	look func(fd uintptr) (done bool) // for raw
	into []byte                       // what look reads, and what came of it:
	n    int
	err  error
}

func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn, raw: rawConn(conn)}
	w.look = w.readOrAsk
	return w
}

// Read reads. One that asks takes three system calls for what would take four: it does
// not look once more before it waits, which on an attempt is always in vain.
func (w *wire) Read(b []byte) (int, error) {
	switch {
	case w.ask == nil:
		return w.Conn.Read(b)
	case w.raw != nil:
		return w.readRaw(b)
	}
	if err := w.asked(); err != nil {
		return 0, err
	}
	return w.Conn.Read(b)
}

func (w *wire) asked() error {
	ask := w.ask
	w.ask = nil
	return ask()
}
