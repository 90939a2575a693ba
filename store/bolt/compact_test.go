package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// filled returns the path of a closed file whose pages are mostly free.
func filled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	s := open(t, dir)
	for i := range 100 {
		if err := publishTo(s, fmt.Sprint(strings.Repeat("x", 100), i)); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now().Add(time.Hour)
	for more := true; more; {
		var err error
		if more, err = s.Purge(t.Context(), driver.Purge{Payloads: now, Attempts: now, EventIDs: now, DedupKeys: now, Limit: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		if err := publishTo(s, fmt.Sprint("kept-", i)); err != nil {
			t.Fatal(err)
		}
	}
	hooks, err := webhooks.New(s, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		t.Fatal(err)
	}
	stats, err := hooks.Stats(t.Context())
	if size := sizeOf(t, filepath.Join(dir, "storage.db")); err != nil || stats.FileBytes != size || stats.FreeBytes < size/2 || stats.FreeBytes > size {
		t.Errorf("Stats = %+v, %v, of a file of %d bytes that is mostly free", stats, err, size)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "storage.db")
}

// rowsOf returns all contents of a file: its rows and the sequences of its buckets.
func rowsOf(t *testing.T, path string) map[string]string {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rows := make(map[string]string)
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			rows[string(name)] = fmt.Sprint(b.Sequence())
			return b.ForEach(func(k, v []byte) error { rows[fmt.Sprintf("%s %q", name, k)] = string(v); return nil })
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestCompact compacts a file with every kind of record, and a file of mostly free pages. The
// contents must stay the same.
func TestCompact(t *testing.T) {
	t.Parallel()
	whole := filepath.Join(t.TempDir(), "whole")
	makeReleased(t, whole)
	free := filled(t)
	for _, src := range []string{whole + ".db", free} {
		dir := t.TempDir()
		dst := filepath.Join(dir, "storage.db")
		if err := os.WriteFile(dst+".compacting-1", nil, 0o600); err != nil { // left by a killed process
			t.Fatal(err)
		}
		before, err := os.ReadFile(src)
		if err != nil {
			t.Fatal(err)
		}
		info, err := boltops.Compact(dst, src)
		if err != nil {
			t.Fatal(err)
		}
		if after, err := os.ReadFile(src); err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s was changed: %v", src, err)
		}
		want := rowsOf(t, src)
		if diff := cmp.Diff(want, rowsOf(t, dst)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", src, diff)
		}
		if info.Before != sizeOf(t, src) || info.After != sizeOf(t, dst) || info.Rows == 0 || info.Duration <= 0 {
			t.Errorf("info %+v, of files of %d and %d bytes", info, sizeOf(t, src), sizeOf(t, dst))
		}
		if src == free && info.After > info.Before/4 {
			t.Errorf("it has %d bytes of %d", info.After, info.Before)
		}
		if mode, err := os.Stat(dst); err != nil || mode.Mode() != 0o600 {
			t.Errorf("mode %v, %v", mode.Mode(), err)
		}
		onlyTheFile(t, dir)
		verify(t, dst)
		s := open(t, dir)
		if err := publishTo(s, "afterwards"); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// If Compact cannot compact a file, its error says why, and it leaves no new file.
func TestCompact_Impossible_ReturnsReason(t *testing.T) {
	t.Parallel()
	src := filled(t)
	dir := t.TempDir()
	dst := filepath.Join(dir, "smaller.db")
	refuses := func(name string, want error) {
		t.Helper()
		if _, err := boltops.Compact(dst, src); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 0 && want != fs.ErrExist {
			t.Errorf("%s leaves %v", name, entries)
		}
	}
	s := open(t, filepath.Dir(src))
	refuses("a file in use", bolt.ErrLocked)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dst, []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses("a target that exists", fs.ErrExist)
	if got, err := os.ReadFile(dst); err != nil || string(got) != "another" {
		t.Errorf("the target was changed: %q, %v", got, err)
	}
	if err := os.Remove(dst); err != nil {
		t.Fatal(err)
	}
	own := src
	src = filepath.Join(t.TempDir(), "none.db")
	refuses("a file that is not there", fs.ErrNotExist)
	if err := os.WriteFile(src, []byte(strings.Repeat("no database ", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses("another program's", bolt.ErrSchema)
	if err := os.WriteFile(src, data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	refuses("a file that is cut short", bolt.ErrSchema)
	src, dst = own, filepath.Join(dir, "no directory", "smaller.db")
	refuses("a target in no directory", fs.ErrNotExist)
}
