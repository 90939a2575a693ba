package bolt

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"go.etcd.io/bbolt"
)

// A CompactInfo says what [Compact] has done.
type CompactInfo struct {
	Before, After int64 // bytes of the files
	Rows          int   // that were copied
	Duration      time.Duration
}

const (
	compactSuffix = ".compacting-" // after the name of the target, of its temporary files
	compactBytes  = 4 << 20        // of rows in a transaction, about, for bbolt has in memory what one of them changes
	compactFill   = 0.95           // of a page, as appending fills it
)

// errStructure is wrapped by the error of [Compact] for a file whose pages are damaged.
var errStructure = fmt.Errorf("%w: damaged", ErrSchema)

// Compact writes to the file dst, mode 0600, what the file src holds, without the pages that are free:
// those of what was purged, which a file otherwise keeps to use them again. The file src is
// closed, and is not changed. Then put dst in its place. Nothing of what was deleted or
// erased is in dst.
//
// The file dst appears when it is whole and on the disk: if Compact fails or is killed, for want of room
// say, there is none. It must not exist before (an error that wraps [fs.ErrExist]). The error wraps
// [ErrLocked] if src is in use: stop the host, or compact a copy by [Store.Backup]. It wraps
// [ErrSchema] if src is not ours, of another schema, or its pages are damaged, which [Verify] tells more of.
//
// Compact takes some 20 MiB of memory, and reads src twice.
func Compact(dst, src string) (info CompactInfo, err error) {
	began := time.Now()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = &fs.PathError{Op: "compact", Path: dst, Err: fs.ErrExist}
		}
		return info, err
	}
	from, err := openReadOnly(src)
	if err != nil {
		return info, fmt.Errorf("compact %s: %w", src, err)
	}
	defer from.close()
	if info, err = from.compact(dst); err != nil {
		return CompactInfo{}, fmt.Errorf("compact %s to %s: %w", src, dst, err)
	}
	info.Duration = time.Since(began)
	return info, nil
}

func (f *readOnlyFile) compact(dst string) (info CompactInfo, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errDamaged(p)
		}
	}()
	var report Report
	if checkPages(f.file, f.bytes, &report); len(report.Problems) > 0 {
		return info, fmt.Errorf("%w: %s", errStructure, report.Problems[0])
	}
	if err := f.db.View(checkSchema); err != nil {
		return info, err
	}
	removeTemporary(dst, compactSuffix)
	temporary, err := os.CreateTemp(filepath.Dir(dst), filepath.Base(dst)+compactSuffix+"*")
	if err != nil {
		return info, err
	}
	name := temporary.Name()
	defer func() { _ = os.Remove(name) }()
	if err := temporary.Close(); err != nil {
		return info, err
	}
	if info, err = copyRows(name, f.db); err != nil {
		return info, err
	}
	info.Before = f.bytes
	return info, publish(name, dst)
}

// publish gives a file that is on the disk its name, unless there is another of that name.
func publish(temporary, path string) error {
	if err := os.Link(temporary, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return err
		}
		if _, err := os.Lstat(path); err == nil {
			return &fs.PathError{Op: "rename", Path: path, Err: fs.ErrExist}
		}
		if err := os.Rename(temporary, path); err != nil { // where there are no links
			return err
		}
	}
	syncDir(filepath.Dir(path))
	return nil
}

// copyRows makes a file of the rows of another.
func copyRows(path string, from *bbolt.DB) (info CompactInfo, err error) {
	to, file, err := openFile(path, time.Now().Add(defaultWait), &bbolt.Options{NoSync: true, NoGrowSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return info, err
	}
	c := &compaction{to: to}
	defer func() { // also if what is read is damaged
		if c.tx != nil {
			_ = c.tx.Rollback()
		}
		_ = to.Close()
	}()
	err = from.View(func(tx *bbolt.Tx) error { return tx.ForEach(c.bucket) })
	if err = errors.Join(err, c.end()); err != nil {
		return info, err
	}
	var size int64
	if err := to.View(func(tx *bbolt.Tx) error { size = tx.Size(); return nil }); err != nil {
		return info, err
	}
	err = errors.Join(file.Truncate(size), file.Sync())
	return CompactInfo{After: size, Rows: c.rows}, err
}

// A compaction writes rows in transactions of some bytes each.
type compaction struct {
	to   *bbolt.DB
	tx   *bbolt.Tx // nil: none is open
	size int
	rows int
}

// bucket copies a bucket, except that of free pages.
func (c *compaction) bucket(name []byte, from *bbolt.Bucket) error {
	if bytes.Equal(name, bucketSpare) {
		return nil
	}
	if err := c.begin(); err != nil {
		return err
	}
	to, err := c.tx.CreateBucket(name)
	if err != nil {
		return err
	}
	if err := to.SetSequence(from.Sequence()); err != nil {
		return err
	}
	to.FillPercent = compactFill
	return from.ForEach(func(k, v []byte) error {
		if c.size > compactBytes {
			if err := errors.Join(c.end(), c.begin()); err != nil {
				return err
			}
			to = c.tx.Bucket(name)
			to.FillPercent = compactFill
		}
		c.size += len(k) + len(v)
		c.rows++
		return to.Put(k, v)
	})
}

func (c *compaction) begin() (err error) {
	if c.tx == nil {
		c.tx, err = c.to.Begin(true)
	}
	return err
}

func (c *compaction) end() error {
	if c.tx == nil {
		return nil
	}
	tx := c.tx
	c.tx, c.size = nil, 0
	return tx.Commit()
}

// removeTemporary removes what was left of temporary files for that path by a process that was
// killed: those with a name that os.CreateTemp gives, and not the host's own, which may begin as theirs.
func removeTemporary(path, suffix string) {
	dir, prefix := filepath.Dir(path), filepath.Base(path)+suffix
	entries, _ := os.ReadDir(dir) // what cannot be listed stays
	for _, entry := range entries {
		if random, ok := strings.CutPrefix(entry.Name(), prefix); ok && strings.Trim(random, "0123456789") == "" {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}
