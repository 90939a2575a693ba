package boltops

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/files"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// A CompactInfo is the result of [Compact].
type CompactInfo struct {
	Before, After int64 // sizes of src and dst in bytes
	Rows          int   // number of copied rows
	Duration      time.Duration
}

const (
	compactSuffix = ".compacting-" // suffix of temporary files
	// Maximum size in bytes of the rows in one transaction: bbolt keeps a transaction's changes in
	// memory.
	compactBytes = 4 << 20
	compactFill  = 0.95 // fraction of a page to fill, as for appended rows
)

// errDamagedPages is wrapped by errors for a file with damaged pages.
var errDamagedPages = fmt.Errorf("%w: damaged", pagefile.ErrSchema)

// Compact writes a copy of the closed file src to the new file dst, with mode 0600. The copy omits
// free pages, which a file keeps for reuse after a purge; so it contains no deleted or erased data.
// Compact does not change src. To use the copy, replace src with dst.
//
// Compact creates dst only when the copy is complete and on disk; if Compact fails or is killed, it
// creates no dst. If dst already exists, the error wraps [fs.ErrExist]. It wraps [bolt.ErrLocked]
// if src is in use: stop the host, or compact a copy made by [bolt.Store.Backup]. It wraps
// [bolt.ErrSchema] if another program made src, or src has another schema or damaged pages;
// [Verify] reports such pages.
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

func (f *file) compact(dst string) (info CompactInfo, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = pagefile.Damaged(p)
		}
	}()
	var report Report
	if len(f.checkPages(&report)) > 0 {
		return info, fmt.Errorf("%w: %s", errDamagedPages, report.Problems[0])
	}
	if err := f.db.View(schema.Check); err != nil {
		return info, err
	}
	files.RemoveTemporary(dst, compactSuffix)
	temporary, err := files.Temporary(dst, compactSuffix)
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
	return info, files.Publish(name, dst)
}

// copyRows creates a file at path with the rows of another file.
func copyRows(path string, from *bbolt.DB) (info CompactInfo, err error) {
	to, file, err := pagefile.Open(path, time.Now().Add(pagefile.DefaultWait), &bbolt.Options{NoSync: true, NoGrowSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return info, err
	}
	c := &compaction{to: to}
	defer func() { // also after a panic
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

// A compaction copies rows in transactions of about compactBytes each.
type compaction struct {
	to   *bbolt.DB
	tx   *bbolt.Tx // nil if no transaction is open
	size int
	rows int
}

// bucket copies a bucket, except the bucket of parked free pages.
func (c *compaction) bucket(name []byte, from *bbolt.Bucket) error {
	if bytes.Equal(name, schema.Spare) {
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
