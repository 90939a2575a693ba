package storageapi

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/storageapi/storageapi/store/bolt"
)

// ErrNoBackup is returned by [Handler.Backup] if Config.Store is one that cannot be copied so: it is
// in memory, or a server's. Use what the server has, such as pg_dump for PostgreSQL, at any time.
var ErrNoBackup = errors.New("storageapi: this store has no file to back up; use the tools of its server, such as pg_dump")

// Backup writes a copy of the file to w, at any time, while the Handler is in use: a whole file, with
// everything that was acknowledged before the call, and when keys were last used. See
// [bolt.Store.Backup] for the room it takes next to the file, for errors, and for several at a
// time. [ErrNoBackup] if the store is none of package bolt; [ErrClosed] after Close.
//
// A host that keeps a copy a day is examples/backup.
func (h *Handler) Backup(ctx context.Context, w io.Writer) (bolt.BackupInfo, error) {
	backup := h.store.Capabilities().Backup
	switch {
	case backup == nil:
		return bolt.BackupInfo{}, ErrNoBackup
	case h.closing.Err() != nil:
		return bolt.BackupInfo{}, ErrClosed
	}
	// A store that is halted, say, refuses them, and is copied without: the service logs that.
	_ = h.Keys.WriteUses(ctx)
	info, err := backup(ctx, w)
	if err != nil {
		return bolt.BackupInfo{}, fmt.Errorf("storageapi: %w", err)
	}
	return info, nil
}
