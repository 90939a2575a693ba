package postgres

import (
	"strings"
	"syscall"
)

const tcpUserTimeout = 0x12 // TCP_USER_TIMEOUT, missing in package syscall

// control makes the kernel close a connection whose peer does not acknowledge data within
// defaultTimeout.
func control(network, _ string, conn syscall.RawConn) (err error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	failed := conn.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(defaultTimeout.Milliseconds()))
	})
	if failed != nil {
		return failed
	}
	return err
}
