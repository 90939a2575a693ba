package bolt_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

// Open refuses a file that was left, with an explanation. The option Left allows opening the file
// to copy it, and Return allows opening it normally.
func TestLeave_FileIsRefusedUntilReturn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	opened := func(options ...bolt.Option) *bolt.Store {
		t.Helper()
		s, err := bolt.Open(path, options...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	closing := func(s *bolt.Store) {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(words ...string) {
		t.Helper()
		_, err := bolt.Open(path)
		if !errors.Is(err, bolt.ErrLeft) {
			t.Fatalf("Open = %v, want ErrLeft", err)
		}
		for _, word := range append(words, path, "bolt.Return") {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("Open = %v, which does not say %q", err, word)
			}
		}
	}
	s := opened()
	key := driver.Key{Account: "acct", ID: "key", Hash: driver.Hash{Sum: [32]byte{1}}}
	if err := s.CreateKey(t.Context(), key, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Leave(t.Context(), strings.Repeat("x", 4097)); err == nil {
		t.Error("Leave took a place of 4,097 bytes")
	}
	if err := s.Leave(t.Context(), "PostgreSQL at db.internal"); err != nil {
		t.Fatal(err)
	}
	closing(s)
	refused("PostgreSQL at db.internal", "which has newer data")

	s = opened(bolt.Left())
	if sums, err := transfer.Summarize(t.Context(), s, ""); err != nil || sums[transfer.KindKey].Count != 1 {
		t.Errorf("Summarize = %v, %v", sums, err)
	}
	if err := bolt.Return(path); !errors.Is(err, bolt.ErrLocked) {
		t.Errorf("Return to a file that is open = %v, want ErrLocked", err)
	}
	closing(s)
	refused()

	for range 2 {
		if err := bolt.Return(path); err != nil {
			t.Fatal(err)
		}
	}
	s = opened()
	if _, err := s.KeyByID(t.Context(), "acct", "key"); err != nil {
		t.Error(err)
	}
	if err := s.Leave(t.Context(), "elsewhere"); err != nil {
		t.Fatal(err)
	}
	if err := s.Leave(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	closing(s)
	closing(opened())
	missing := filepath.Join(t.TempDir(), "missing.db")
	if err := bolt.Return(missing); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("Return to a file that is not there = %v", err)
	}
}
