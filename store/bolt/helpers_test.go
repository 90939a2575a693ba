package bolt

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"
)

var (
	errBad  = errors.New("bad")
	errFull = &fs.PathError{Op: "write", Path: "storage.db", Err: syscall.ENOSPC} // as bbolt returns it
)

func openTemp(tb testing.TB) *Store {
	s, err := Open(filepath.Join(tb.TempDir(), "storage.db"))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// together commits steps in one batch and returns the error of each.
func together(tb testing.TB, s *Store, list ...func(*batch) error) []error {
	return s.writer.RunTogether(tb.Context(), list...)
}
