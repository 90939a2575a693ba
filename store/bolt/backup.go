package bolt

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/files"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/capability"
)

// A BackupInfo describes a backup. Log it, and use it to verify the copy later.
type BackupInfo = capability.BackupInfo

// backupSuffix is the suffix of the temporary files of Backup.
const backupSuffix = ".backing-up-"

func (s *engine) Backup(ctx context.Context, w io.Writer) (BackupInfo, error) {
	began := time.Now()
	info, err := s.backup(ctx, w)
	if err != nil {
		if ended := ctx.Err(); ended != nil && errors.Is(err, ended) || errors.Is(err, store.ErrClosed) {
			return BackupInfo{}, err
		}
		return BackupInfo{}, fmt.Errorf("back up %s: %w", s.db.Path(), err)
	}
	info.Duration = time.Since(began)
	return info, nil
}

func (s *engine) backup(ctx context.Context, w io.Writer) (info BackupInfo, err error) {
	if err := s.flushAlerts(ctx); err != nil && !errors.Is(err, store.ErrReadOnly) {
		return info, err
	}
	path := s.db.Path()
	removeBackups(path)
	temporary, err := files.Temporary(path, backupSuffix)
	if err != nil {
		return info, err
	}
	defer func() {
		release(ctx, temporary)
		_ = temporary.Close()
		_ = os.Remove(temporary.Name()) // for systems that cannot remove an open file
	}()
	_ = os.Remove(temporary.Name()) // so that no file remains if the process is killed
	if err := s.copyTo(ctx, temporary, &info); err != nil {
		return info, err
	}
	return info, send(ctx, w, temporary, &info)
}

// send copies the temporary file to w, and sets the size and hash in info.
func send(ctx context.Context, w io.Writer, from *os.File, info *BackupInfo) error {
	sum, buffer := sha256.New(), make([]byte, copyChunk)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := from.ReadAt(buffer, info.Bytes)
		if n > 0 {
			_, _ = sum.Write(buffer[:n]) // never fails
			switch written, err := w.Write(buffer[:n]); {
			case err != nil:
				return err
			case written < n:
				return io.ErrShortWrite
			}
			info.Bytes += int64(n)
		}
		if err == io.EOF {
			sum.Sum(info.SHA256[:0])
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// removeBackups removes temporary files left by killed processes. A backup in progress is not
// affected: its file has already been removed, or cannot be removed while open.
func removeBackups(path string) { files.RemoveTemporary(path, backupSuffix) }

const (
	copyChunk = 256 << 10 // bytes read and written at a time
	copyPage  = 4 << 10   // bytes compared at a time
	copySync  = 1 << 20   // bytes written before a sync
	copyFree  = 4 << 20   // bytes freed between syncs
	copyRest  = 3         // duration of a rest, as a multiple of the preceding work
	copyPause = 50 * time.Millisecond

	leftRoom = 16 << 20 // bytes a backup must leave free: one growth step of the file
)

// copyTo writes a consistent copy of the database file into the file to, and syncs to. The copy
// includes all changes committed before the call.
//
// While a read transaction is open, bbolt cannot reuse freed pages. If one transaction spanned the
// whole copy, every write meanwhile would make the file larger. So copyTo first copies twice
// without a transaction, slowly enough to leave the disk to publishers; the second pass copies only
// the changes made during the first. The result is almost complete, but inconsistent. Then copyTo
// opens a transaction, compares the file with the copy, and rewrites the parts that differ. This
// last step takes about as long as reading the file, which is cached by then unless it is larger
// than the memory.
func (s *engine) copyTo(ctx context.Context, to *os.File, info *BackupInfo) error {
	tx, err := s.view(ctx)
	if err != nil {
		return err
	}
	size := tx.Size()
	_ = tx.Rollback()
	for range 2 {
		if err := s.copySlowly(ctx, to, size); err != nil {
			if errors.Is(err, os.ErrClosed) {
				return store.ErrClosed
			}
			return err
		}
	}
	if err := s.markCopy(ctx); err != nil { // otherwise an older copy could seem newer
		return err
	}
	if err := s.copyChanged(ctx, to, info); err != nil {
		return err
	}
	return to.Sync()
}

// markCopy marks the clock before a copy is made. A halted store cannot write the mark, and does
// not need one: the file no longer changes, so the copy cannot become outdated.
func (s *engine) markCopy(ctx context.Context) error {
	err := s.writer.Run(ctx, func(b *batch) error { return s.marks.mark(b.Tx, 0) })
	if errors.Is(err, store.ErrReadOnly) {
		return nil
	}
	return err
}

// leaveRoom returns an error if writing the given number of bytes to file would leave less than
// leftRoom free on its disk.
func (s *engine) leaveRoom(file *os.File, bytes int64) error {
	free, known := s.options.System.FreeRoom(file)
	if !known || free >= bytes+leftRoom {
		return nil
	}
	return &fs.PathError{Op: "write", Path: file.Name(), Err: fmt.Errorf(
		"%w: the copy needs %d more bytes and must leave %d to the host, but only %d are free", syscall.ENOSPC, bytes, leftRoom, free)}
}

// copySlowly compares the first size bytes of the file with the copy and writes the parts that
// differ. It rests after each part. It returns an error before the disk is full, because
// publishers need space, too.
func (s *engine) copySlowly(ctx context.Context, to *os.File, size int64) error {
	buffer, changed := make([]byte, copyChunk), newChangeWriter(ctx, to)
	began, rested := time.Now(), int64(0)
	for at := int64(0); at < size; {
		if at == rested { // at the beginning and after each rest
			copied, err := to.Stat()
			if err != nil {
				return err
			}
			if err := s.leaveRoom(to, size-copied.Size()); err != nil {
				return err
			}
		}
		n, err := s.file.ReadAt(buffer[:min(copyChunk, size-at)], at)
		if n == 0 && err != nil && err != io.EOF {
			return err
		}
		if n == 0 {
			return nil // copyChanged writes the rest
		}
		if _, err := changed.Write(buffer[:n]); err != nil {
			return err
		}
		if at += int64(n); at-rested < copySync {
			continue
		}
		if err := rest(ctx, began); err != nil {
			return err
		}
		began, rested = time.Now(), at
	}
	return nil
}

// rest pauses for copyRest times the time elapsed since began, but at most copyPause.
func rest(ctx context.Context, began time.Time) error {
	select {
	case <-time.After(min(copyRest*time.Since(began), copyPause)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release frees the disk space of a copy that is about to be removed: it truncates the copy step by
// step, and rests after each step. On ext4 with the mount option discard, a journal commit waits
// until the disk has discarded the freed space, and a publisher's sync waits for that commit. If
// 256 MiB were freed at once, the wait would be 0.2 s.
func release(ctx context.Context, copied *os.File) {
	info, err := copied.Stat()
	if err != nil {
		return
	}
	for size := info.Size(); size > 0; {
		began := time.Now()
		size = max(size-copyFree, 0)
		if copied.Truncate(size) != nil || copied.Sync() != nil || rest(ctx, began) != nil {
			return
		}
	}
}

// copyChanged rewrites the parts of the copy that differ from the file, in one transaction, so
// that the copy is consistent.
func (s *engine) copyChanged(ctx context.Context, to *os.File, info *BackupInfo) (err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return err
	}
	defer s.done(tx, catchFaults(), &err)
	s.marks.copies.Add(1)
	info.At = time.Now().UTC()
	info.Schema = schema.Version
	info.LastPublished = eventlog.LastPublished(tx)
	if copied, err := to.Stat(); err == nil {
		if err := s.leaveRoom(to, tx.Size()-copied.Size()); err != nil {
			return err
		}
	}
	changed := newChangeWriter(ctx, to)
	w := bufio.NewWriterSize(changed, copyChunk)
	if _, err := tx.WriteTo(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return to.Truncate(tx.Size())
}

// A changeWriter writes only the parts of its input that differ from the file. It syncs the file
// every copySync bytes, because a publisher's sync may have to wait for unsynced pages of the copy
// (on ext4, when the sync commits the journal).
type changeWriter struct {
	ctx      context.Context
	to       *os.File
	at       int64
	unsynced int
	buffer   []byte
}

func newChangeWriter(ctx context.Context, to *os.File) *changeWriter {
	return &changeWriter{ctx: ctx, to: to, buffer: make([]byte, copyChunk)}
}

func (c *changeWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.to.ReadAt(c.buffer[:len(p)], c.at)
	if err != nil && err != io.EOF {
		return 0, err
	}
	for begin := 0; begin < len(p); {
		end := begin
		for end < len(p) && differ(p, c.buffer[:n], end) {
			end = min(end+copyPage, len(p))
		}
		if end == begin {
			begin += copyPage
			continue
		}
		if _, err := c.to.WriteAt(p[begin:end], c.at+int64(begin)); err != nil {
			return 0, err
		}
		c.unsynced += end - begin
		begin = end
	}
	c.at += int64(len(p))
	if c.unsynced >= copySync {
		c.unsynced = 0
		return len(p), c.to.Sync()
	}
	return len(p), nil
}

// differ reports whether the page of p at offset at differs from the same page of q. q may be
// shorter than p.
func differ(p, q []byte, at int) bool {
	end := min(at+copyPage, len(p))
	return end > len(q) || !bytes.Equal(p[at:end], q[at:end])
}
