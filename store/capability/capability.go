// Package capability lists the optional capabilities of a store, beyond the methods that every
// store has:
//
//	if halted := store.Capabilities().Halted; halted != nil {
//		err = halted()
//	}
//
// It is for authors of stores and of store wrappers.
package capability

import (
	"context"
	"crypto/sha256"
	"io"
	"time"
)

// A Set has the capabilities of a store. A nil, false or empty field means that the store lacks the
// capability. The functions are safe for concurrent use. A store returns the same Set each time. A
// wrapper has the capabilities of its store unless it returns another Set.
type Set struct {
	// Halted returns why the store is read-only until it is reopened: a disk failure has left its
	// contents on disk unknown. It returns nil while the store is writable.
	Halted func() error

	// Doubt returns how much of the elapsed system time is not trusted yet, because the clock may
	// have been set while the process was not running. This time does not count towards disabling
	// failing webhooks, because no attempt failed then.
	Doubt func() time.Duration

	// FileSize returns the size of the store's file, and the number of its free bytes.
	FileSize func() (bytes, free int64)

	// Backup writes a copy of the store's file to w.
	Backup func(ctx context.Context, w io.Writer) (BackupInfo, error)

	// Leave marks the store as moved to a place, described in at most 4,096 bytes. Later attempts
	// to open the store fail. The error names the place and says how to remove the mark.
	Leave func(ctx context.Context, place string) error

	// Warnings describe settings that may lose acknowledged writes. Each has three sentences: the
	// setting, the possible loss, and the remedy.
	Warnings []string

	// Shared means that several processes may use the store, and that each delivers a part of the
	// pending deliveries. Steps are reported to a process's scheduler soon after their calls
	// return, not before.
	Shared bool

	// PurgesConcurrently means that other methods do not wait for Purge.
	PurgesConcurrently bool
}

// A BackupInfo describes a backup, for logs and for verifying the copy later.
type BackupInfo struct {
	Bytes         int64             // number of bytes written
	SHA256        [sha256.Size]byte // hash of the bytes written
	Schema        int               // schema version of the file, see docs/format.md
	At            time.Time         // time of the state; it includes everything acknowledged before
	LastPublished time.Time         // publication of the newest event; zero if there is none
	Duration      time.Duration     // duration of the whole call
}
