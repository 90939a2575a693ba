package postgres

import (
	"strings"
	"syscall"
)

const tcpUserTimeout = 0x12 // TCP_USER_TIMEOUT, which package syscall does not have

// control has the kernel close a connection that leaves unanswered for so long what was
// sent.
func control(network, _ string, conn syscall.RawConn) (err error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	failed := conn.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(patience.Milliseconds()))
	})
	if failed != nil {
		return failed
	}
	return err
}
