package bolt

import (
	"flag"
	"syscall"
	"testing"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/storetest"
)

var interrupted = flag.Bool("interrupted", false, "run TestCommit_Interrupted_StepsRunAgain, as CI does")

// The test interrupts every second commit, so that its steps run twice. State that the first run
// left in memory must have no effect.
func TestCommit_Interrupted_StepsRunAgain(t *testing.T) {
	t.Parallel()
	if !*interrupted {
		t.Skip("runs all of storetest again: go test ./store/bolt -run Interrupted -interrupted")
	}
	failed := 0
	storetest.Run(t, func(t *testing.T) store.Store {
		n := 0
		var disk boltfault.Disk
		disk.Around(func(commit func() error) error {
			if n++; n%2 == 0 {
				return commit()
			}
			failed++
			return syscall.EINTR
		})
		return openTemp(t, disk.Option)
	})
	if failed < 100 {
		t.Errorf("%d commits were interrupted, want at least 100", failed)
	}
}
