package bolt

import (
	"syscall"
	"testing"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/storetest"
)

// The test interrupts every second commit, so that its steps run twice. State that the first run
// left in memory must have no effect.
func TestCommit_Interrupted_StepsRunAgain(t *testing.T) {
	t.Parallel()
	if testing.Short() || testbubble.Raced {
		t.Skip("the whole of storetest once more: runs without -short, and without the race detector")
	}
	interrupted := 0
	storetest.Run(t, func(t *testing.T) store.Store {
		n := 0
		var disk boltfault.Disk
		disk.Around(func(commit func() error) error {
			if n++; n%2 == 0 {
				return commit()
			}
			interrupted++
			return syscall.EINTR
		})
		return openTemp(t, disk.Option)
	})
	if interrupted < 100 {
		t.Errorf("%d commits were interrupted, want at least 100", interrupted)
	}
}
