package bolt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/schema"

	"github.com/storageapi/storageapi/store/bolt/internal/files"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
)

// create makes a new file, unless there is one. The file appears when it is complete:
// a crash leaves a temporary file at most, which is never opened.
func create(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // opening it will tell what it is
	}
	dir, name := filepath.Split(path)
	temporary, err := os.CreateTemp(dir, "."+name+".*")
	if err != nil {
		return nil // opening it will tell this better
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	if err := temporary.Close(); err != nil {
		return err
	}
	db, _, err := pagefile.Open(temporary.Name(), time.Now().Add(pagefile.DefaultWait), &bbolt.Options{})
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(schema.Create), db.Close()); err != nil {
		return err
	}
	if os.Link(temporary.Name(), path) == nil { // or else another process was first, or bbolt creates it
		files.SyncDir(filepath.Dir(path))
	}
	return nil
}
