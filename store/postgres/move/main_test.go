package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

// The test copies from one file to another, so that it needs no database.
func TestMove(t *testing.T) {
	dir := t.TempDir()
	from, to, position := filepath.Join(dir, "from.db"), filepath.Join(dir, "to.db"), filepath.Join(dir, "position")
	s, err := bolt.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	key := driver.Key{Account: "acct", ID: "key", CreatedAt: time.Now()}
	key.Hash.Sum[0] = 1
	if err := errors.Join(s.CreateKey(t.Context(), key, driver.CreateOptions{}), s.Close()); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if err := move(ended, &out, from, to, position); !errors.Is(err, context.Canceled) {
		t.Errorf("cut short: %v", err)
	}
	if err := move(t.Context(), &out, from, to, position); err != nil {
		t.Fatal(err)
	}
	want := "copying: 1 of 1\ncomparing: 1 of 1\n         1 API keys\nBoth sides are the same. Start the host on " + to + ".\n"
	if diff := cmp.Diff(want, out.String()); diff != "" { // without \r, since this is no terminal
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if err := move(t.Context(), &out, from, to, position); !errors.Is(err, bolt.ErrLeft) {
		t.Errorf("once more: %v, want ErrLeft", err)
	}
	if s, err = bolt.Open(to); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if _, err := s.KeyByHash(t.Context(), key.Hash); err != nil {
		t.Error(err)
	}
}

func TestNameOf(t *testing.T) {
	for place, want := range map[string]string{
		"storage.db":                        "storage.db",
		"postgres://me:secret@db/storage":   "postgres://me:xxxxx@db/storage",
		"postgres://me:secret@db:x/storage": "a PostgreSQL database",
	} {
		if got := nameOf(place); got != want {
			t.Errorf("nameOf(%q) = %q, want %q", place, got, want)
		}
	}
}
