//go:build unix

package webhooks

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// A read that is to ask does so if nothing has come, once, and then waits for what
// comes: also for what comes before it waits.
func TestReadThatAsks(t *testing.T) {
	t.Parallel()
	refused := errors.New("it cannot be asked")
	say := func(theirs net.Conn) { _, _ = io.WriteString(theirs, "x") }
	for name, test := range map[string]struct {
		before func(theirs net.Conn) // the read
		ask    func(theirs net.Conn) error
		asked  bool
		err    error // nil: something is read
	}{
		"quiet":            {nil, func(theirs net.Conn) error { say(theirs); return nil }, true, nil},
		"answered at ease": {nil, func(theirs net.Conn) error { time.AfterFunc(5*time.Millisecond, func() { say(theirs) }); return nil }, true, nil},
		"closed by it":     {nil, func(theirs net.Conn) error { return theirs.Close() }, true, io.EOF},
		"not quiet":        {say, nil, false, nil},
		"closed":           {func(theirs net.Conn) { _ = theirs.Close() }, nil, false, io.EOF},
		"cannot be asked":  {nil, func(net.Conn) error { return refused }, true, refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 100 {
				ours, theirs := connected(t)
				if test.before != nil {
					test.before(theirs)
					time.Sleep(time.Millisecond) // until it has arrived
				}
				wire, asked := newWire(ours), 0
				_ = wire.SetDeadline(time.Now().Add(10 * time.Second))
				wire.ask = func() error { asked++; return test.ask(theirs) }
				n, err := wire.Read(make([]byte, 8))
				if !errors.Is(err, test.err) || (n == 1) != (test.err == nil) {
					t.Fatalf("read %d bytes, %v", n, err)
				}
				if (asked > 0) != test.asked || asked > 1 || (wire.ask == nil) != test.asked {
					t.Fatalf("asked %d times", asked)
				}
				_ = ours.Close()
				_ = theirs.Close()
			}
		})
	}
}

// A read that has asked ends at the deadline, or when the connection is closed.
func TestReadThatAsksInVain(t *testing.T) {
	t.Parallel()
	ours, _ := connected(t)
	wire := newWire(ours)
	wire.ask = func() error { return nil }
	_ = wire.SetDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := wire.Read(make([]byte, 8)); classify(err) != errTimeout {
		t.Errorf("at the deadline: %v", err)
	}
	_ = wire.SetDeadline(time.Time{})
	wire.ask = func() error { time.AfterFunc(10*time.Millisecond, func() { _ = wire.Close() }); return nil }
	if _, err := wire.Read(make([]byte, 8)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("when it was closed: %v", err)
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
