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

// needsPolling skips a test of connections that are kept, where none is.
func needsPolling(t *testing.T) {
	t.Helper()
	if ours, _ := connected(t); !newTransport(ours).canPoll() {
		t.Skip("no connection is kept on this system")
	}
}

// A poll reads what has come, and never waits.
func TestPoll(t *testing.T) {
	t.Parallel()
	needsPolling(t)
	for name, test := range map[string]struct {
		before func(theirs net.Conn) error
		n      int
		err    error
	}{
		"quiet":  {func(net.Conn) error { return nil }, 0, os.ErrDeadlineExceeded},
		"a byte": {func(theirs net.Conn) error { _, err := io.WriteString(theirs, "x"); return err }, 1, nil},
		"closed": {func(theirs net.Conn) error { return theirs.Close() }, 0, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 100 {
				ours, theirs := connected(t)
				if err := test.before(theirs); err != nil {
					t.Fatal(err)
				}
				transport := newTransport(ours)
				transport.polling = true
				n, err := transport.Read(make([]byte, 8))
				for wait := 0; test.err != os.ErrDeadlineExceeded && errors.Is(err, os.ErrDeadlineExceeded) && wait < 1000; wait++ {
					time.Sleep(time.Millisecond) // until it has arrived
					n, err = transport.Read(make([]byte, 8))
				}
				if n != test.n || !errors.Is(err, test.err) {
					t.Fatalf("read %d bytes, %v", n, err)
				}
				_ = ours.Close()
				_ = theirs.Close()
			}
		})
	}
	t.Run("closed by us", func(t *testing.T) {
		ours, _ := connected(t)
		transport := newTransport(ours)
		_ = ours.Close()
		transport.polling = true
		if _, err := transport.Read(make([]byte, 8)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// A connection that cannot be polled is not kept: what its receiver sends before it is
// asked would be taken for the next response.
func TestConnectionsThatCannotBePolledAreNotKept(t *testing.T) {
	t.Parallel()
	for name, polls := range map[string]bool{"polled": true, "not polled": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if polls {
				needsPolling(t)
			}
			dials := 0
			client := New(NewGuard(nil, nil), nil, 8)
			client.SpeakPlain()
			client.dial = func(context.Context, caller, string) (net.Conn, error) {
				dials++
				ours, theirs := connected(t)
				go func() {
					request := make([]byte, 1<<10)
					for n, err := theirs.Read(request); err == nil && n > 0; n, err = theirs.Read(request) {
						_, _ = io.WriteString(theirs, "HTTP/1.1 204 No Content\r\n\r\n")
					}
				}()
				if !polls {
					return struct{ net.Conn }{ours}, nil
				}
				return ours, nil
			}
			target, err := NewTarget("https://example.com/", nil)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				response := client.Post(new(Canceler), Request{Target: target, Body: []byte("{}"), Deadline: time.Now().Add(time.Minute)})
				if response.Status != 204 {
					t.Fatalf("%+v", response)
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
func connected(t *testing.T) (ours, theirs net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if ours, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if theirs, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	return ours, theirs
}
