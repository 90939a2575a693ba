//go:build !unix

package outbound

import (
	"net"
	"syscall"
)

// A read that does not wait cannot be had here, so no connection is kept.
func rawConn(net.Conn) syscall.RawConn { return nil }

func (t *transport) poll([]byte) (int, error) { panic("there is no raw connection") }

func (p *polled) readOnce(uintptr) (done bool) { panic("there is no raw connection") }
