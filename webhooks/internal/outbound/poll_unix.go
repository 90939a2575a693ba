//go:build unix

package outbound

import (
	"io"
	"net"
	"os"
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

// poll reads what has come, without waiting. The read deadline must not have passed.
func poll(raw syscall.RawConn, b []byte) (n int, err error) {
	closed := raw.Read(func(fd uintptr) (done bool) {
		for {
			if n, err = syscall.Read(int(fd), b); err != syscall.EINTR {
				return true
			}
		}
	})
	switch {
	case closed != nil:
		return 0, closed
	case err == syscall.EAGAIN:
		return 0, os.ErrDeadlineExceeded
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
