//go:build unix

package webhooks

import (
	"io"
	"net"
	"syscall"
)

func rawConn(conn net.Conn) syscall.RawConn {
	if system, ok := conn.(syscall.Conn); ok {
		if raw, err := system.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// readRaw reads, and asks if nothing has come.
func (w *wire) readRaw(b []byte) (int, error) {
	w.into = b
	err := w.raw.Read(w.look)
	w.into = nil
	if err == nil {
		err = w.err
	}
	switch {
	case err != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Err: err}
	case w.n == 0:
		return 0, io.EOF
	}
	return w.n, nil
}

// readOrAsk is called again once something has come, if it returns false.
func (w *wire) readOrAsk(fd uintptr) (done bool) {
	for {
		w.n, w.err = syscall.Read(int(fd), w.into)
		if w.err != syscall.EINTR {
			break
		}
	}
	if w.err != syscall.EAGAIN {
		return true
	}
	if w.ask == nil {
		return false
	}
	w.err = w.asked()
	return w.err != nil
}
