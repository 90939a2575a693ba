package limiter

import (
	"fmt"
	"testing"
)

func TestRequestRoomOf_AccountAtItsShare_LeavesTheRestToOthers(t *testing.T) {
	b := newBench(t, 320, 320)
	for i := range 10 {
		if got, want := b.l.RequestRoomOf("a1"), 10-i; got != want {
			t.Fatalf("with %d requested attempts: room for %d more, want %d", i, got, want)
		}
		b.beginRequested("a1", fmt.Sprint("w", i), false, true)
	}
	if got := b.l.RequestRoomOf("a1"); got != 0 {
		t.Errorf("at its share: room for %d more, want 0", got)
	}
	if all, other := b.l.RequestRoom(), b.l.RequestRoomOf("a2"); all != 30 || other != 10 {
		t.Errorf("for all %d and for another account %d, want 30 and 10", all, other)
	}
	b.end(0, Success, 0)
	if got := b.l.RequestRoomOf("a1"); got != 1 {
		t.Errorf("after one has ended: room for %d more, want 1", got)
	}
}
