package webhooks_test

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// The receiver accepts no more connections, so further connections wait.
func TestTimeout_BoundsConnecting(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Skip(err)
	}
	if err := syscall.Listen(socket, 0); err != nil {
		t.Skip(err)
	}
	name, err := syscall.Getsockname(socket)
	if err != nil {
		t.Skip(err)
	}
	address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: name.(*syscall.SockaddrInet4).Port}
	for waiting := 0; ; waiting++ {
		conn, err := net.DialTimeout("tcp", address.String(), timeout)
		if err != nil {
			break
		}
		t.Cleanup(func() { conn.Close() })
		if waiting == 20 {
			t.Skip("this system takes connections without end")
		}
	}
	full := &receiver{address: address.String()}
	got := attempt(t, full.url("hooks.example.com"), func(c *webhooks.Config) { c.Outbound.Timeout = timeout })
	if fails(t, got, slow); got.Attempt.Duration < timeout || got.Attempt.Duration > timeout+5*time.Second {
		t.Errorf("it took %v", got.Attempt.Duration)
	}
}
