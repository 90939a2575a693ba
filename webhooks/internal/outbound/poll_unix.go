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

// Poll implements [Poller]. The read deadline must not have passed.
func (p *descriptorPoller) Poll(b []byte) (int, error) {
	p.b = b
	closed := p.raw.Read(p.read)
	p.b = nil
	switch {
	case closed != nil:
		return 0, closed
	case p.err == syscall.EAGAIN:
		return 0, os.ErrDeadlineExceeded
	case p.err != nil:
		return 0, os.NewSyscallError("read", p.err)
	case p.n == 0:
		return 0, io.EOF
	}
	return p.n, nil
}

func (p *descriptorPoller) readOnce(fd uintptr) (done bool) {
	for {
		if p.n, p.err = syscall.Read(int(fd), p.b); p.err != syscall.EINTR {
			return true
		}
	}
}
