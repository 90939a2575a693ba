package schema

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/files"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
)

// CreateFile creates a file with all buckets, unless it exists. It fills a temporary file, and
// links the file to path when the file is complete. A crash leaves at most a temporary file, which
// is never opened.
func CreateFile(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil // opening the file reports errors
	}
	dir, name := filepath.Split(path)
	temporary, err := os.CreateTemp(dir, "."+name+".*")
	if err != nil {
		return nil // opening the file reports a better error
	}
	defer func() { _ = os.Remove(temporary.Name()) }()
	if err := temporary.Close(); err != nil {
		return err
	}
	db, _, err := pagefile.Open(temporary.Name(), time.Now().Add(pagefile.DefaultWait), &bbolt.Options{})
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(create), db.Close()); err != nil {
		return err
	}
	// If the link fails, another process has created the file, or bbolt will create it.
	if os.Link(temporary.Name(), path) == nil {
		files.SyncDir(filepath.Dir(path))
	}
	return nil
}

// Initialize creates the buckets of an empty file. It returns an error if another program made the
// file or the file has another schema.
func Initialize(db *bbolt.DB) error {
	empty := false
	err := db.View(func(tx *bbolt.Tx) error {
		first, _ := tx.Cursor().First()
		if empty = first == nil; empty {
			return nil
		}
		if err := Check(tx); err != nil {
			return err
		}
		for _, name := range Buckets {
			if tx.Bucket(name) == nil {
				return pagefile.Damaged(fmt.Sprintf("the bucket %s is missing", name))
			}
		}
		return nil
	})
	if err != nil || !empty {
		return err
	}
	return db.Update(create)
}
