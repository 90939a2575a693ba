//go:build !unix

package outbound

import (
	"net"
	"syscall"
)

// rawConn returns nil: non-blocking reads are not available here, so no connection is kept.
func rawConn(net.Conn) syscall.RawConn { return nil }

func (p *descriptorPoller) Poll([]byte) (int, error) { panic("outbound: no raw connection") }

func (p *descriptorPoller) readOnce(uintptr) (done bool) { panic("outbound: no raw connection") }
