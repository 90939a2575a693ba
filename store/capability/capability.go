// Package capability defines the optional features of a store, beyond the methods that every store
// has:
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

// A Set holds the capabilities of a store. A nil, false or empty field means that the store lacks
// the capability. The functions are safe for concurrent use. A store returns the same Set each
// time. A wrapper that embeds a store has the store's capabilities unless it overrides
// Capabilities.
type Set struct {
	// Halted returns the error that made the store read-only, or nil while the store is writable. A
	// store becomes read-only, until it is reopened, when a disk failure leaves its contents on
	// disk unknown.
	Halted func() error

	// Doubt returns how much of the elapsed system time may be the effect of setting the clock
	// while the process was not running. This time does not count towards disabling failing
	// webhooks, because no attempt failed during it.
	Doubt func() time.Duration

	// FileSize returns the size of the store's file and how many of its bytes are free.
	FileSize func() (bytes, free int64)

	// Backup writes a copy of the store's file to w.
	Backup func(ctx context.Context, w io.Writer) (BackupInfo, error)

	// Leave marks the store as moved to place, which is a description of at most 4,096 bytes. Later
	// attempts to open the store fail with an error that names the place and says how to remove the
	// mark.
	Leave func(ctx context.Context, place string) error

	// Warnings describe settings that may cause the loss of acknowledged writes. Each warning has
	// three sentences: the setting, the possible loss, and the remedy.
	Warnings []string

	// Shared means that several processes may use the store, and that each process delivers a part
	// of the pending deliveries. Such a store reports a step to the scheduler of a process soon
	// after the call returns, not before.
	Shared bool

	// WatchKeys reports changes by other processes. Soon after another process has changed or
	// deleted a key, it calls changed with the key's ID; soon after another process has erased the
	// keys of an account, it calls changed with an empty ID. It may miss changes. It returns when
	// ctx ends or the store is closed. A store must have WatchKeys if it is Shared, and only then.
	WatchKeys func(ctx context.Context, changed func(account, id string))

	// PurgesConcurrently means that other methods do not wait while Purge runs.
	PurgesConcurrently bool
}

// A BackupInfo describes a backup, for logs and for verifying the copy later.
type BackupInfo struct {
	Bytes         int64             // number of bytes written
	SHA256        [sha256.Size]byte // hash of the bytes written
	Schema        int               // schema version of the file, see docs/format.md
	At            time.Time         // the backup includes every change acknowledged before this time
	LastPublished time.Time         // publication time of the newest event; zero if there is none
	Duration      time.Duration     // duration of the whole call
}
