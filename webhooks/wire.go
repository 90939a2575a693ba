package webhooks

import (
	"net"
	"syscall"
)

// A wire is what a connection goes over, beneath TLS. It can be read without waiting.
type wire struct {
	net.Conn
	impatient bool // reads do not wait: see errQuiet

	raw  syscall.RawConn // nil where there is none
	into []byte          // what look reads, and what came of it:
	n    int
	err  error
}

func newWire(conn net.Conn) *wire {
	w := &wire{Conn: conn}
	if system, ok := conn.(syscall.Conn); ok {
		w.raw, _ = system.SyscallConn()
	}
	return w
}

func (w *wire) Read(b []byte) (int, error) {
	if w.impatient {
		return w.readNow(b)
	}
	return w.Conn.Read(b)
}

// errQuiet is what an impatient read returns if nothing has come. TLS takes it, as
// any error that is temporary, for no end of the connection.
var errQuiet net.Error = quiet{}

type quiet struct{}

func (quiet) Error() string   { return "nothing has come" }
func (quiet) Timeout() bool   { return true }
func (quiet) Temporary() bool { return true }
