package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

func init() { roles["hurry"] = createInAHurry }

// TestHangingDisk makes the syncs of a real file hang for longer than callers wait, and then
// succeed or fail, while the store is being closed. The file must contain every acknowledged key
// and no refused key.
func TestHangingDisk(t *testing.T) {
	for name, inject := range map[string]string{
		"slow":                 "fdatasync:delay_enter=60000",
		"slow, and then fails": "fdatasync:delay_enter=60000:error=EIO:when=3+",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := open(t, dir).Close(); err != nil {
				t.Fatal(err)
			}
			said := make(map[string]string) // outcome by ID
			for _, call := range trace(t, "hurry", dir, inject) {
				if call.name == "line" {
					what, id, _ := strings.Cut(strings.TrimSpace(string(call.data)), " ")
					said[id] = what
				}
			}
			s := open(t, dir)
			defer func() { _ = s.Close() }()
			counts := make(map[string]int)
			for id, what := range said {
				_, err := s.KeyByID(t.Context(), "acct", id)
				if is := err == nil; what == "done" && !is || what == "refused" && is {
					t.Errorf("%s was %s; it is there: %v", id, what, is)
				}
				counts[what]++
			}
			t.Log(counts)
			if counts["done"] == 0 || counts["refused"] == 0 {
				t.Error("the test tests too little")
			}
		})
	}
}

// createInAHurry creates keys from several goroutines, each with a timeout of 30 ms, and closes the
// store meanwhile. It prints the outcome of each creation.
func createInAHurry(path string) error {
	s, err := bolt.Open(path)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for who := range 8 {
		all.Go(func() {
			for i := range 20 {
				key := someKey(fmt.Sprint("key", who, "-"), i)
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
				what := "unsure"
				switch err := s.CreateKey(ctx, key, driver.CreateOptions{}); {
				case err == nil:
					what = "done"
				case errors.Is(err, context.DeadlineExceeded), errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrReadOnly):
					what = "refused"
				}
				cancel()
				_, _ = os.Stdout.WriteString(what + " " + key.ID + "\n")
			}
		})
	}
	time.Sleep(time.Second)
	err = s.Close()
	all.Wait()
	return err
}
