// Package files creates files that appear under their final name only when they are complete and
// durable. It writes a file under a temporary name, syncs it, and then gives it the final name.
package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Temporary creates a temporary file next to path. Its name consists of path's name, the suffix
// and digits.
func Temporary(path, suffix string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), filepath.Base(path)+suffix+"*")
}

// RemoveTemporary removes temporary files that killed processes left. It removes only files whose
// whole name has the form that [Temporary] makes, because names of the host's own files may begin
// in the same way.
func RemoveTemporary(path, suffix string) {
	dir, prefix := filepath.Dir(path), filepath.Base(path)+suffix
	entries, _ := os.ReadDir(dir) // if the directory cannot be listed, the files stay
	for _, entry := range entries {
		if random, ok := strings.CutPrefix(entry.Name(), prefix); ok && strings.Trim(random, "0123456789") == "" {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

// Publish gives a durable file its final name. The error wraps [fs.ErrExist] if another file has
// that name.
func Publish(temporary, path string) error {
	if err := os.Link(temporary, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return err
		}
		if _, err := os.Lstat(path); err == nil {
			return &fs.PathError{Op: "rename", Path: path, Err: fs.ErrExist}
		}
		if err := os.Rename(temporary, path); err != nil { // the file system may have no hard links
			return err
		}
	}
	SyncDir(filepath.Dir(path))
	return nil
}

// SyncDir makes the names in a directory durable, where the system supports it.
func SyncDir(path string) {
	dir, err := os.Open(path)
	if err != nil {
		return
	}
	_ = dir.Sync()
	_ = dir.Close()
}
