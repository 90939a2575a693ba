//go:build !unix

package webhooks

import (
	"net"
	"syscall"
)

// There is no reading without waiting here: what came on an idle connection is noticed
// only if it was read with the response before.
func rawConn(net.Conn) syscall.RawConn { return nil }

func (w *wire) readRaw([]byte) (int, error)   { panic("there is no raw connection") }
func (w *wire) readOrAsk(uintptr) (done bool) { return true }
