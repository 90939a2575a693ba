package bolt

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/storetest"
)

// TestCommit_Interrupted_StepsRunAgain interrupts every other commit, so that its steps run again.
// State that the first run left in memory must have no effect.
func TestCommit_Interrupted_StepsRunAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() || testbubble.Raced {
		t.Skip("the whole of storetest once more: runs without -short, and without the race detector")
	}
	interrupted := 0
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := open(filepath.Join(t.TempDir(), "storage.db"))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		s.writer.Around(func(commit func() error) error {
			if n++; n%2 == 0 {
				return commit()
			}
			interrupted++
			return syscall.EINTR
		})
		return s
	})
	if interrupted < 100 {
		t.Errorf("%d commits were interrupted, want at least 100", interrupted)
	}
}
