//go:build !unix

package outbound

import (
	"net"
	"syscall"
)

// rawConn returns nil: non-blocking reads are not available here, so no connection is kept.
func rawConn(net.Conn) syscall.RawConn { return nil }

func (t *transport) poll([]byte) (int, error) { panic("outbound: no raw connection") }

func (p *polled) readOnce(uintptr) (done bool) { panic("outbound: no raw connection") }
