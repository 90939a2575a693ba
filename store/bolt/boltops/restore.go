package boltops

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/internal/files"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// restoreSuffix is the suffix of the temporary files of Restore.
const restoreSuffix = ".restoring-"

// Restore creates a file at path from a backup, which is a copy made by [bolt.Store.Backup] or a
// plain copy of the closed file. The fence lists the revocations since the backup; Restore repeats
// them. No file may exist at path: move the abandoned file aside, and name it in [Fence.Abandoned].
// Never open a backup without Restore: revoked keys would be valid again, and deliveries made since
// the backup would be repeated.
//
// Restore puts all webhooks on hold, unless the fence has NoHold: publishing works, but nothing is
// sent until webhooks.WebhookService.Release or ReleaseAll is called. Restore passes the options to
// [bolt.Open], for example [bolt.Sealed].
//
// Restore writes the file under another name, "<path>.restoring-…", makes it durable, and renames
// it. So if the process is killed, there is either no file at path or a complete one. The next
// Restore to the same path removes all temporary files, including the file of a Restore that is
// still running. If Restore returns an error, it has created no file at path. The error may wrap
//
//   - [ErrUnfenced] if the fence is incomplete,
//   - [fs.ErrExist] if path exists,
//   - [bolt.ErrLocked] if a file is in use,
//   - [bolt.ErrSchema] if another program made a file, or it has damaged pages, or [Verify] finds
//     damage and the fence has RefuseDamaged,
//   - [signing.ErrSealed] if a file is sealed with a key that was not given.
//
// Restore needs disk space for a copy of the file, or for copies of both files if the abandoned
// file was itself restored since the backup. It takes as much memory as Open.
func Restore(path, from string, fence Fence, options ...bolt.Option) (RestoreInfo, error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var info RestoreInfo
	err := restore(path, from, &fence, &info, options)
	if err != nil {
		return RestoreInfo{}, fmt.Errorf("restore %s from %s: %w", path, from, err)
	}
	return info, nil
}

func restore(path, from string, fence *Fence, info *RestoreInfo, options []bolt.Option) (err error) {
	if !fence.NothingRevoked && len(fence.DeletedKeys)+len(fence.RotatedKeys)+len(fence.DisabledKeys) == 0 && fence.Abandoned == "" {
		return fmt.Errorf("%w: name the abandoned file in Fence.Abandoned, list keys in Fence.DeletedKeys, Fence.RotatedKeys and Fence.DisabledKeys, or set Fence.NothingRevoked", ErrUnfenced)
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%w: move it aside, and name it in Fence.Abandoned", fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	backup, err := os.Stat(from)
	if err != nil {
		return err
	}
	if abandoned, err := os.Stat(fence.Abandoned); err == nil && os.SameFile(backup, abandoned) {
		return fmt.Errorf("%w: Fence.Abandoned is the backup itself", ErrUnfenced)
	}
	files.RemoveTemporary(path, restoreSuffix)
	f := &fencer{path: path, from: from, fence: fence, info: info, options: options}
	source := from
	if fence.Abandoned != "" {
		if err := f.compare(); err != nil {
			return fmt.Errorf("compare the abandoned file %s with the backup: %w", fence.Abandoned, err)
		}
		source = fence.Abandoned
	}
	if f.restored, err = copyClosed(path, source); err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	defer f.restored.remove()
	if fence.RefuseDamaged {
		if err := f.restored.report.Err(); err != nil {
			return err
		}
	}
	if err := f.run(); err != nil {
		return err
	}
	if err := f.restored.file.Sync(); err != nil {
		return err
	}
	return files.Publish(f.restored.path, path)
}

// A closedCopy is a temporary copy of a closed file. Its pages are sound.
type closedCopy struct {
	file   *os.File
	path   string
	report Report // result of Verify for the copy
}

func (c *closedCopy) remove() {
	_ = c.file.Close()
	_ = os.Remove(c.path)
}

// copyClosed copies a closed file, and verifies the copy.
func copyClosed(path, from string) (c *closedCopy, err error) {
	defer func() {
		if p := recover(); p != nil { // bbolt maps the file, which may shrink meanwhile
			err = pagefile.Damaged(p)
		}
		if err != nil && c != nil {
			c.remove()
		}
	}()
	db, source, err := openClosed(from)
	if err != nil {
		return nil, err
	}
	defer func() { _ = pagefile.Close(db, source) }() // keeps the source locked while copying
	file, err := files.Temporary(path, restoreSuffix)
	if err != nil {
		return nil, err
	}
	c = &closedCopy{file: file, path: file.Name()}
	if _, err := io.Copy(file, io.NewSectionReader(source, 0, 1<<62)); err != nil {
		return c, err
	}
	copied, err := openReadOnly(c.path)
	if err != nil {
		return c, err
	}
	defer copied.close()
	damaged, err := copied.verify(&c.report, nil)
	if err == nil && damaged {
		err = fmt.Errorf("%w: %s", errDamagedPages, c.report.Problems[0])
	}
	return c, err
}

// openClosed opens and locks a file for reading.
func openClosed(path string) (*bbolt.DB, *os.File, error) {
	until := time.Now().Add(pagefile.DefaultWait)
	if _, err := os.Stat(path); err != nil {
		return nil, nil, err
	}
	if err := pagefile.Precheck(path, until, string(schema.Spare)); err != nil {
		return nil, nil, err
	}
	return pagefile.Open(path, until, &bbolt.Options{ReadOnly: true})
}

// isSame reports whether path still names the copy. Another Restore to the same path may have
// removed it.
func (c *closedCopy) isSame() bool {
	is, err := c.file.Stat()
	there, failed := os.Stat(c.path)
	return err == nil && failed == nil && os.SameFile(is, there)
}

// An origin identifies the history of a file, to find out which of two files is older.
type origin struct {
	cursors, restored, marks []byte // rows of the bucket meta
	clock                    time.Time
}

func originOf(tx *bbolt.Tx) (o origin) {
	row := func(key []byte) []byte { return bytes.Clone(tx.Bucket(schema.Meta).Get(key)) }
	o = origin{cursors: row(schema.MetaCursors), restored: row(schema.MetaRestored), marks: row(schema.MetaMarks)}
	if mark, err := record.DecodeMark(row(schema.MetaClock)); err == nil {
		o.clock = mark.Steady
	}
	return o
}

// isOlder reports whether the file has an earlier state than the other file. An earlier state may
// contain keys that were revoked later. The store counts the clock marks in a file, and adds one
// before and after each copy of the file, so a lower count means an earlier state. A restored file
// counts separately; if the files are not of the same restore, the times of the last marks decide.
func (o *origin) isOlder(than *origin) bool {
	if bytes.Equal(o.restored, than.restored) {
		return bytes.Compare(o.marks, than.marks) < 0
	}
	return !than.clock.IsZero() && o.clock.Before(than.clock)
}
