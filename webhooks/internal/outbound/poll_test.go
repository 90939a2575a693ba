package outbound

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// needsPolling skips a test of idle connections on a system where none are kept.
func needsPolling(t *testing.T) {
	t.Helper()
	if local, _ := connected(t); !newTransport(local).canPoll() {
		t.Skip("this system keeps no idle connections")
	}
}

func TestTransport_Polling_ReadsWithoutWaiting(t *testing.T) {
	t.Parallel()
	needsPolling(t)
	for name, test := range map[string]struct {
		before func(remote net.Conn) error
		n      int
		err    error
	}{
		"quiet":  {func(net.Conn) error { return nil }, 0, os.ErrDeadlineExceeded},
		"a byte": {func(remote net.Conn) error { _, err := io.WriteString(remote, "x"); return err }, 1, nil},
		"closed": {func(remote net.Conn) error { return remote.Close() }, 0, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 100 {
				local, remote := connected(t)
				if err := test.before(remote); err != nil {
					t.Fatal(err)
				}
				transport := newTransport(local)
				transport.polling = true
				n, err := transport.Read(make([]byte, 8))
				for wait := 0; test.err != os.ErrDeadlineExceeded && errors.Is(err, os.ErrDeadlineExceeded) && wait < 1000; wait++ {
					time.Sleep(time.Millisecond) // until the byte or the end has arrived
					n, err = transport.Read(make([]byte, 8))
				}
				if n != test.n || !errors.Is(err, test.err) {
					t.Fatalf("Read = %d, %v; want %d, %v", n, err, test.n, test.err)
				}
				_ = local.Close()
				_ = remote.Close()
			}
		})
	}
	t.Run("closed locally", func(t *testing.T) {
		local, _ := connected(t)
		transport := newTransport(local)
		_ = local.Close()
		transport.polling = true
		if _, err := transport.Read(make([]byte, 8)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read on a closed connection: got %v, want an error other than a timeout", err)
		}
	})
}

// Unexpected bytes on a connection that cannot be polled would be mistaken for the next response.
func TestClient_ConnectionCannotBePolled_IsNotKept(t *testing.T) {
	t.Parallel()
	for name, polls := range map[string]bool{"polled": true, "not polled": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if polls {
				needsPolling(t)
			}
			dials := 0
			client := New(Config{Plain: true, MaxIdle: 8, Dial: func(context.Context, Caller, string) (net.Conn, error) {
				dials++
				local, remote := connected(t)
				go func() {
					request := make([]byte, 1<<10)
					for n, err := remote.Read(request); err == nil && n > 0; n, err = remote.Read(request) {
						_, _ = io.WriteString(remote, "HTTP/1.1 204 No Content\r\n\r\n")
					}
				}()
				if !polls {
					return struct{ net.Conn }{local}, nil
				}
				return local, nil
			}})
			target, err := NewTarget("https://example.com/", nil)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				response := client.Post(new(Canceler), Request{Target: target, Body: []byte("{}"), Deadline: time.Now().Add(time.Minute)})
				if response.Status != 204 {
					t.Fatalf("got %+v, want status 204", response)
				}
			}
			if want := map[bool]int{true: 1, false: 3}[polls]; dials != want {
				t.Errorf("%d connections for 3 requests, want %d", dials, want)
			}
			client.CloseIdle()
		})
	}
}

// connected returns the two ends of a connection.
func connected(t *testing.T) (local, remote net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if local, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if remote, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = local.Close(); _ = remote.Close() })
	return local, remote
}
