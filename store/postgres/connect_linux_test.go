package postgres_test

import (
	"net"
	"syscall"
	"testing"
)

// The kernel closes a connection of Open's pool whose peer does not acknowledge data.
func TestUserTimeout(t *testing.T) {
	s := openAt(t, newRelay(t), "", inSchema(t))
	conn, err := s.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	raw, err := conn.Conn().PgConn().Conn().(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const tcpUserTimeout = 0x12
	var ms, alive int
	if controlErr := raw.Control(func(fd uintptr) {
		if ms, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout); err == nil {
			alive, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
		}
	}); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	if ms < 1000 || ms > 30_000 || alive < 1 || alive > 30 {
		t.Errorf("TCP_USER_TIMEOUT is %d ms, keep-alives begin after %d s", ms, alive)
	}
	if config := s.Pool().Config(); config.PingTimeout <= 0 || config.ConnConfig.ConnectTimeout <= 0 {
		t.Errorf("PingTimeout %v, ConnectTimeout %v", config.PingTimeout, config.ConnConfig.ConnectTimeout)
	}
}
