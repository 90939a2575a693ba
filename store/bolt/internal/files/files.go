// Package files makes files that appear under their name when they are whole and durable: they are
// written under a temporary name, synced, and published.
package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Temporary creates a temporary file next to the path: its name is that of the path, the suffix and digits.
func Temporary(path, suffix string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), filepath.Base(path)+suffix+"*")
}

// RemoveTemporary removes the temporary files that a killed process has left. It removes only names that
// [Temporary] makes: files of the host may begin with the same name and suffix.
func RemoveTemporary(path, suffix string) {
	dir, prefix := filepath.Dir(path), filepath.Base(path)+suffix
	entries, _ := os.ReadDir(dir) // files that cannot be listed stay
	for _, entry := range entries {
		if random, ok := strings.CutPrefix(entry.Name(), prefix); ok && strings.Trim(random, "0123456789") == "" {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

// Publish gives a durable file its name. An error wraps [fs.ErrExist] if another file has the name.
func Publish(temporary, path string) error {
	if err := os.Link(temporary, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return err
		}
		if _, err := os.Lstat(path); err == nil {
			return &fs.PathError{Op: "rename", Path: path, Err: fs.ErrExist}
		}
		if err := os.Rename(temporary, path); err != nil { // the file system has no links
			return err
		}
	}
	SyncDir(filepath.Dir(path))
	return nil
}

// SyncDir makes the names in a directory durable, on systems that can.
func SyncDir(path string) {
	dir, err := os.Open(path)
	if err != nil {
		return
	}
	_ = dir.Sync()
	_ = dir.Close()
}
