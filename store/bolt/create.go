package bolt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
)

// create makes a new file, unless there is one. It comes into being whole: what a
// crash leaves of one half made is never taken for ours, and is never in the way.
func create(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // whatever it is, opening it will tell
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
	db, _, err := openFile(temporary.Name(), &bbolt.Options{})
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(createSchema), db.Close()); err != nil {
		return err
	}
	if os.Link(temporary.Name(), path) == nil { // or else somebody was first, or it is made in its place
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
