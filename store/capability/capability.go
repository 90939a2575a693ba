// Package capability lists what a store may be able to do beyond the methods that every store
// has:
//
//	if halted := store.Capabilities().Halted; halted != nil {
//		err = halted()
//	}
//
// It is for authors of stores, and for those who wrap one.
package capability

import (
	"context"
	"crypto/sha256"
	"io"
	"time"
)

// A Set has the capabilities of a store: what is nil, false or empty is one that it does not have.
// The functions are safe for concurrent use. A store returns the same Set each time. A type that
// wraps a store has those of the store, unless it returns another Set.
type Set struct {
	// Halted returns why the store writes nothing until it is opened again, because its disk has
	// failed such that it is unknown what it holds; nil if it writes.
	Halted func() error

	// Doubt returns how much of the time that has passed by the system's clock is not to be
	// believed yet, since the clock may have been set while the process was not running. It does
	// not count for turning webhooks off: nothing failed then.
	Doubt func() time.Duration

	// FileSize returns the size of the file that the store keeps everything in, and how many
	// of its bytes are free.
	FileSize func() (bytes, free int64)

	// Backup writes a copy of that file to w.
	Backup func(ctx context.Context, w io.Writer) (BackupInfo, error)

	// Leave marks the store as left for a place, of at most 4,096 bytes. From then on it cannot
	// be opened by mistake: the error names the place, and says how to undo it.
	Leave func(ctx context.Context, place string) error

	// Warnings say how the store is set up such that it may lose what it has acknowledged: what
	// is set, what that may lose, and what to do, a sentence each.
	Warnings []string

	// Shared says that several processes may use the store, each of which delivers a part of what
	// is pending: steps are reported to its scheduler soon after their calls return, and not before.
	Shared bool

	// PurgesConcurrently says that other methods do not wait for Purge.
	PurgesConcurrently bool
}

// A BackupInfo says what a backup holds, for a log, and to check the copy by later.
type BackupInfo struct {
	Bytes         int64             // that were written
	SHA256        [sha256.Size]byte // of them
	Schema        int               // of the file, see docs/format.md
	At            time.Time         // the state is of this moment: what was acknowledged by then is in it
	LastPublished time.Time         // when its newest event was published; zero if it has none
	Duration      time.Duration     // of the whole call
}
