package storageapi

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/storageapi/storageapi/store/bolt"
)

// ErrNoBackup is returned by [Handler.Backup] if Config.Store has no file to copy, because it keeps
// its data in memory or on a server. A server has tools of its own, such as pg_dump for PostgreSQL,
// which can be used at any time.
var ErrNoBackup = errors.New("storageapi: this store has no file to back up; use the tools of its server, such as pg_dump")

// Backup writes a complete copy of the file to w. It can be called while the Handler is in use.
// The copy contains everything acknowledged before the call, and the last-used times of keys.
// See [bolt.Store.Backup] for disk space, errors and concurrent backups. It returns
// [ErrNoBackup] if the store has no file, and [ErrClosed] after Close.
func (h *Handler) Backup(ctx context.Context, w io.Writer) (bolt.BackupInfo, error) {
	backup := h.store.Capabilities().Backup
	switch {
	case backup == nil:
		return bolt.BackupInfo{}, ErrNoBackup
	case h.closing.Err() != nil:
		return bolt.BackupInfo{}, ErrClosed
	}
	// If the write fails, for example on a halted store, the copy lacks the latest last-used
	// times; the key service logs the failure.
	_ = h.Keys.WriteUses(ctx)
	info, err := backup(ctx, w)
	if err != nil {
		return bolt.BackupInfo{}, fmt.Errorf("storageapi: %w", err)
	}
	return info, nil
}
