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

// A BackupInfo says what a backup holds, for a log, and to check the copy by later.
type BackupInfo = capability.BackupInfo

// backupSuffix is what the names of the temporary files of Backup have after the file's.
const backupSuffix = ".backing-up-"

// Backup writes a copy of the file to w: a whole file that [Open] opens, with one consistent
// state. Everything that was acknowledged before the call is in it, as is what alerts
// have in memory only. Publishing, claiming and verifying go on meanwhile.
//
// The state is copied to a temporary file next to the file, mode 0600, and from there to w, however slow that is: nothing of the live file is held back for a
// slow w. There must be room for that file and 16 MiB more, or Backup returns an error that wraps [syscall.ENOSPC]
// and leaves the room to the host. The temporary file is gone when Backup returns, also if w panics. One that a
// killed process left, named "<path>.backing-up-…", is removed by the next Open or Backup.
//
// If Backup returns an error, what w was given is no backup, and is to be thrown away. The
// error is the context's if that ended; it wraps what w, or the disk, returned; it is
// [store.ErrClosed] after, or during, Close unless the state was copied by then. The context
// is looked at between writes: one to w that hangs is for w to end. Nothing of the store changes
// but a mark of its clock, whatever fails. A store that is halted is copied as its readers see it.
//
// While the file is compared with the copy, at the end, its pages cannot be used again: it grows by what is written in that
// time. Nor can it grow beyond what of it bbolt has mapped into memory, which is a power of two up to
// 1 GiB, and then a multiple of that: one that has to do so in that time, some tenths of a second for each GiB if the
// file is cached, waits for it, and so do those who read what is not in memory.
//
// Several backups at a time are independent of each other; each needs its room. Backup takes
// half a MiB of memory, or less than 1 MiB, for a file of any size. The copy has the signing
// secrets as the file has them, and its free pages, which [Compact] leaves out.
func (s *Store) Backup(ctx context.Context, w io.Writer) (BackupInfo, error) {
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

func (s *Store) backup(ctx context.Context, w io.Writer) (info BackupInfo, err error) {
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
		_ = temporary.Close()
		_ = os.Remove(temporary.Name()) // where an open file has to keep its name
	}()
	_ = os.Remove(temporary.Name()) // a process that is killed leaves nothing
	if err := s.copyTo(ctx, temporary, &info); err != nil {
		return info, err
	}
	return info, send(ctx, w, temporary, &info)
}

// send writes the copy to w.
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

// removeBackups removes what backups of a process that was killed have left. Those under way
// have no name, or one that is not removed while they are open.
func removeBackups(path string) { files.RemoveTemporary(path, backupSuffix) }

const (
	copyChunk = 256 << 10 // read and written at a time
	copyPage  = 4 << 10   // compared at a time
	copySync  = 1 << 20   // written before they are synced
	copyRest  = 3         // times as long as they took, without a transaction
	copyPause = 50 * time.Millisecond

	leftRoom = 16 << 20 // bytes of the disk that a backup does not take: the file grows by as many
)

// copyTo copies the file as it is after the call began, and syncs the copy.
//
// A read transaction would keep bbolt from using pages again for as long as the copy takes, and
// the file would grow by all that is written meanwhile. So a copy is made without one, at a pace that
// leaves the disk to publishers. That copy is of no one state. Then, in a transaction, the
// file is compared with it, and what has changed is written again: that takes about as
// long as reading the file, which is cached by then unless it is larger than the memory.
func (s *Store) copyTo(ctx context.Context, to *os.File, info *BackupInfo) error {
	tx, err := s.view(ctx)
	if err != nil {
		return err
	}
	size := tx.Size()
	_ = tx.Rollback()
	if err := s.copySlowly(ctx, to, size); err != nil {
		if errors.Is(err, os.ErrClosed) {
			return store.ErrClosed
		}
		return err
	}
	if err := s.markCopy(ctx); err != nil { // or a file that is older would seem to be newer
		return err
	}
	if err := s.copyChanged(ctx, to, info); err != nil {
		return err
	}
	return to.Sync()
}

// leaveRoom refuses to write that many bytes to a file if less than leftRoom would be left on its disk.
func (s *Store) leaveRoom(file *os.File, bytes int64) error {
	free, known := s.freeRoom(file)
	if !known || free >= bytes+leftRoom {
		return nil
	}
	return &fs.PathError{Op: "write", Path: file.Name(), Err: fmt.Errorf(
		"%w: %d bytes more are to be copied, %d are free, and %d have to be left to the host: make room", syscall.ENOSPC, bytes, free, leftRoom)}
}

// copySlowly copies that many bytes of the file, and rests for as long as it takes to write them. It ends before the disk is
// full, for publishers need room, too.
func (s *Store) copySlowly(ctx context.Context, to *os.File, size int64) error {
	buffer := make([]byte, copyChunk)
	began, synced := time.Now(), int64(0)
	for at := int64(0); at < size; {
		if at == synced { // first of all, and between rests
			if err := s.leaveRoom(to, size-at); err != nil {
				return err
			}
		}
		n, err := s.file.ReadAt(buffer[:min(copyChunk, size-at)], at)
		if n == 0 && err != nil && err != io.EOF {
			return err
		}
		if n == 0 {
			return nil // the rest is written by copyChanged
		}
		if _, err := to.WriteAt(buffer[:n], at); err != nil {
			return err
		}
		if at += int64(n); at-synced < copySync {
			continue
		}
		if err := to.Sync(); err != nil { // or all of it were to be written when a publisher syncs
			return err
		}
		select {
		case <-time.After(min(copyRest*time.Since(began), copyPause)):
		case <-ctx.Done():
			return ctx.Err()
		}
		began, synced = time.Now(), at
	}
	return nil
}

// copyChanged makes the copy one of a single state.
func (s *Store) copyChanged(ctx context.Context, to *os.File, info *BackupInfo) (err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return err
	}
	defer s.done(tx, catchFaults(), &err)
	s.copies.Add(1)
	info.At = time.Now().UTC()
	info.Schema = schema.Version
	info.LastPublished = eventlog.LastPublished(tx)
	if copied, err := to.Stat(); err == nil {
		if err := s.leaveRoom(to, tx.Size()-copied.Size()); err != nil {
			return err
		}
	}
	changed := &changeWriter{ctx: ctx, to: to, buffer: make([]byte, copyChunk)}
	w := bufio.NewWriterSize(changed, copyChunk)
	if _, err := tx.WriteTo(w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return to.Truncate(tx.Size())
}

// A changeWriter writes to a file what it does not have yet.
type changeWriter struct {
	ctx    context.Context
	to     *os.File
	at     int64
	buffer []byte
}

func (c *changeWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.to.ReadAt(c.buffer[:len(p)], c.at)
	if err != nil && err != io.EOF {
		return 0, err
	}
	for begin := 0; begin < len(p); begin += copyPage {
		end := min(begin+copyPage, len(p))
		if end <= n && bytes.Equal(p[begin:end], c.buffer[begin:end]) {
			continue
		}
		if _, err := c.to.WriteAt(p[begin:end], c.at+int64(begin)); err != nil {
			return 0, err
		}
	}
	c.at += int64(len(p))
	return len(p), nil
}
