package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt"
)

// The test damages pages in ways that would make bbolt loop forever, overwrite pages, or panic
// while it opens the file. Open must refuse the file, and leave it neither mapped nor locked.
func TestOpen_DamagedPages_RefusesAndUnmapsFile(t *testing.T) {
	const page = 4096
	whole := filepath.Join(t.TempDir(), "whole.db")
	copyFile(t, rich(t, 170), whole)
	parked := park(t, whole)
	data, err := os.ReadFile(whole)
	must(t, err)
	root := func(bucket string) (id int) {
		t.Helper()
		db, err := bbolt.Open(whole, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
		must(t, err)
		defer db.Close()
		must(t, db.View(func(tx *bbolt.Tx) error { id = int(tx.Bucket([]byte(bucket)).Root()); return nil }))
		return id
	}
	events, list := root("events"), freelistOf(data)
	number := binary.NativeEndian.Uint64
	if binary.NativeEndian.Uint16(data[events*page+8:]) != 1 || binary.NativeEndian.Uint16(data[list*page+10:]) < 3 {
		t.Fatal("coverage precondition failed: events has no branch, or no three pages are free")
	}
	set := func(at int, value uint64) func([]byte) {
		return func(data []byte) { binary.NativeEndian.PutUint64(data[at:], value) }
	}
	child := func(i int) int { return events*page + 16 + 16*i + 8 }
	for name, test := range map[string]struct {
		change func(data []byte)
		says   string
	}{
		"a branch that leads to itself":         {set(child(1), uint64(events)), "used twice"},
		"a branch that leads to another bucket": {set(child(1), uint64(root("delivery_runs"))), "used twice"},
		"two branches that lead to one page":    {set(child(1), number(data[child(0):])), "used twice"},
		"a branch that leads to a parked page":  {set(child(1), uint64(parked+2)), "used twice"},
		"a leaf that is free":                   {set(list*page+16, number(data[child(0):])), "on the free list, but in use"},
		"a page that is free twice":             {set(list*page+16, number(data[list*page+24:])), "on the free list, but in use"},
		"a free page outside of the file":       {set(list*page+16, 1<<40), "on the free list, but in use"},
		"the kind of that list":                 {func(data []byte) { data[list*page+8] = 2 }, "not a free-list page"},
		"how long that list is": {func(data []byte) { // 0xffff: the first 8 bytes hold the length
			data[list*page+10], data[list*page+11] = 0xff, 0xff
			binary.NativeEndian.PutUint64(data[list*page+16:], 1<<40)
		}, ""},
		"how many pages that list has": {func(data []byte) { data[list*page+15] = 0x7f }, "not a free-list page"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "damaged.db")
			damaged := bytes.Clone(data)
			test.change(damaged)
			must(t, os.WriteFile(path, damaged, 0o600))
			for range 3 {
				s, err := bolt.Open(path)
				if err == nil {
					_ = s.Close()
				}
				if !errors.Is(err, bolt.ErrSchema) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("Open = %v, want one that says %q", err, test.says)
				}
			}
			maps, err := os.ReadFile("/proc/self/maps")
			must(t, err)
			if n := strings.Count(string(maps), path); n > 0 {
				t.Errorf("the file is mapped into memory %d times, want 0", n)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, damaged) {
				t.Errorf("Open has changed the file: %v", err)
			}
		})
	}
}

// park parks three pages of a file, and returns the first of them.
func park(t *testing.T, path string) (first int) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	defer db.Close()
	key := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, 3), 1)
	must(t, db.Update(func(tx *bbolt.Tx) error {
		spare, err := tx.CreateBucketIfNotExists([]byte("spare_pages"))
		must(t, err)
		extent, err := spare.CreateBucket(key)
		must(t, err)
		return extent.Put([]byte{0}, make([]byte, 2*4096+100))
	}))
	must(t, db.View(func(tx *bbolt.Tx) error { first = int(tx.Bucket([]byte("spare_pages")).Bucket(key).Root()); return nil }))
	return first
}
