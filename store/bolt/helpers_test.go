package bolt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/storageapi/storageapi/internal/boltfault"
	"github.com/storageapi/storageapi/internal/testclock"
)

var (
	errBad  = errors.New("bad")
	errFull = &fs.PathError{Op: "write", Path: "storage.db", Err: syscall.ENOSPC} // as bbolt returns it
)

func openTemp(tb testing.TB, options ...Option) *engine {
	s, err := open(filepath.Join(tb.TempDir(), "storage.db"), options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// systemClock makes the store use c as its system clock.
func systemClock(c *testclock.Clock) Option { return boltfault.SystemClock(c.Now) }

// together commits steps in one batch and returns the error of each.
func together(tb testing.TB, s *engine, list ...func(*batch) error) []error {
	return boltfault.Together(tb.Context(), s.writer.Run, list...)
}

// CheckSound checks that Verify finds no problem in the store's file, and that restoring a backup
// of it produces a sound file.
func CheckSound(tb testing.TB, s *engine) {
	tb.Helper()
	dir := tb.TempDir()
	backup, restored := filepath.Join(dir, "backup.db"), filepath.Join(dir, "restored.db")
	file, err := os.Create(backup)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err = s.Backup(tb.Context(), file); err == nil {
		err = file.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	if err := RestoreFile(restored, backup); err != nil {
		tb.Fatalf("Restore of a backup, which it verifies: %v", err)
	}
	if report, err := Verify(restored); err != nil || report.Err() != nil {
		tb.Fatalf("Verify of what was restored: %v, %v, want a sound file", err, report.Err())
	}
}
