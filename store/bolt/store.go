package bolt

import (
	"context"
	"io"

	"github.com/storageapi/storageapi/store"
)

// A Store is an open file. It implements [store.Store]: pass it to storageapi.Config, whose services
// call those methods.
type Store struct {
	contract
	engine *engine
}

// contract keeps the methods that only services call out of the documentation of [Store].
type contract = store.Store

// Open opens the file at path, or creates it with mode 0600 in an existing directory. Errors name
// the file. They wrap [ErrLocked] if the file stays open elsewhere for longer than [Wait],
// [ErrSchema] if it is not ours, of another schema or damaged, [ErrLeft] if it was left for another
// store, [signing.ErrSealed] if it is sealed with a key that was not given, [signing.ErrSealer] if
// the Sealer failed, and [signing.ErrDamaged] if the data key is damaged. After an error the file is
// neither open nor locked. Open does not read pending deliveries; the first claim or report does.
func Open(path string, options ...Option) (*Store, error) {
	e, err := open(path, options...)
	if err != nil {
		return nil, err
	}
	return &Store{contract: e, engine: e}, nil
}

// Backup writes a copy of the file to w: a whole file that [Open] opens, with one consistent state.
// The copy includes everything acknowledged before the call, and the alerts that are in memory
// only. Publishing, claiming and verifying continue meanwhile.
//
// Backup copies the state to a temporary file next to the file, mode 0600, and from there to w: a
// slow w does not affect the live file. The temporary file needs room for the copy and 16 MiB more;
// otherwise Backup returns an error that wraps [syscall.ENOSPC] and leaves the room to the host.
// The temporary file is gone when Backup returns, also if w panics. If the process is killed, the
// next Open or Backup removes its temporary file, named "<path>.backing-up-…".
//
// If Backup returns an error, discard the data written to w, which is no backup. The error is the
// context's if that ended; it wraps the error of w or of the disk; it is [store.ErrClosed] after or
// during Close, unless the state was already copied. The context is checked between writes: if a
// write hangs, w must end it. Whatever fails, Backup changes nothing in the store but a mark of its
// clock. The backup of a halted store has the state that its readers see.
//
// At the end, Backup compares the file with the copy. During that time the file's pages cannot be
// reused, so the file grows by the size of all writes. Nor can it outgrow its memory mapping, a
// power of two up to 1 GiB and a multiple of 1 GiB beyond: a commit that would do so waits for the
// comparison, some tenths of a second for each GiB if the file is cached, and so do reads of rows
// that are not in memory.
//
// Concurrent backups are independent; each needs its own room. Backup takes half a MiB of memory,
// or less than 1 MiB, for a file of any size. The copy has the signing secrets as the file has
// them, and the free pages, which [Compact] omits.
func (s *Store) Backup(ctx context.Context, w io.Writer) (BackupInfo, error) {
	return s.engine.Backup(ctx, w)
}

// Halted returns why the store has stopped writing until it is opened again; nil if it writes.
func (s *Store) Halted() error { return s.engine.Halted() }

// Leave marks the file as left for place. From then on Open refuses the file with [ErrLeft], unless
// it is given [Left]. [Return] removes the mark, and so does Leave with an empty place.
func (s *Store) Leave(ctx context.Context, place string) error { return s.engine.Leave(ctx, place) }

// FileSize returns the size of the file, and the size of its free pages as of the last commit, in
// bytes. It takes about a microsecond, and returns 0 and 0 once the store is closed.
func (s *Store) FileSize() (bytes, free int64) { return s.engine.FileSize() }

// Close waits for the steps under way, including steps that wait for a commit, writes the alerts
// that are in memory only, and closes the file. Then every method returns [store.ErrClosed];
// closing again has no effect. If the disk hangs in a commit, Close waits for it.
func (s *Store) Close() error { return s.engine.Close() }
