package bolt

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt/internal/files"
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
