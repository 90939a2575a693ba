package bolt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
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
	db, _, err := openFile(temporary.Name(), time.Now().Add(defaultWait), &bbolt.Options{})
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(createSchema), db.Close()); err != nil {
		return err
	}
	if os.Link(temporary.Name(), path) == nil { // or else another process was first, or bbolt creates it
		syncDir(filepath.Dir(path))
	}
	return nil
}

// syncDir makes the names in a directory durable, where that can be done.
func syncDir(path string) {
	dir, err := os.Open(path)
	if err != nil {
		return
	}
	_ = dir.Sync()
	_ = dir.Close()
}
