package bolt

import (
	"sync"
	"testing"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// TestCommitsAreObserved checks that the observer gets every commit, including failed commits, with
// the number of steps, and that Close waits for the observer.
func TestCommitsAreObserved(t *testing.T) {
	var mu sync.Mutex
	var told []observe.Commit
	var disk boltfault.Disk
	s := openTemp(t, disk.Option, Observe(observe.Observer{Committed: func(c observe.Commit) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, c)
	}}, nil))
	write := func(b *batch) error { return b.Put(schema.Meta, []byte("test"), []byte("x")) }
	together(t, s, write, write, write)
	disk.Around(func(func() error) error { return errFull })
	together(t, s, write)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || told[0].Steps != 3 || told[0].Err != nil || told[0].Duration <= 0 || told[1].Steps != 1 || told[1].Err == nil {
		t.Errorf("told %+v", told)
	}
}
