package bolt

import (
	"context"
	"io"

	"github.com/storageapi/storageapi/store"
)

// A Store is an open file. It implements [store.Store]; set it in storageapi.Config, so that the
// services call its methods.
type Store struct {
	contract
	engine *engine
}

// contract is embedded so that the documentation of [Store] omits the methods that only services
// call.
type contract = store.Store

// Open opens the file at path, or creates it with mode 0600 in an existing directory. Open does
// not read pending deliveries. If it returns an error, the file is neither open nor locked. The
// error names the file. It wraps
//
//   - [ErrLocked] if the file stays open elsewhere for longer than [Wait],
//   - [ErrSchema] if another program made the file, or it has another schema or is damaged,
//   - [ErrLeft] if the file was left for another store,
//   - [signing.ErrSealed] if the file is sealed with a key that was not given,
//   - [signing.ErrSealer] if the Sealer failed, and
//   - [signing.ErrDamaged] if the data key is damaged.
func Open(path string, options ...Option) (*Store, error) {
	e, err := open(path, options...)
	if err != nil {
		return nil, err
	}
	return &Store{contract: e, engine: e}, nil
}

// Backup writes a copy of the file to w. The copy is a complete file that [Open] can open, in one
// consistent state. It includes everything acknowledged before the call, including alerts that are
// in memory only. Publishing, claiming deliveries and verifying keys continue meanwhile.
//
// Backup first copies the state to a temporary file next to the file, with mode 0600, and from
// there to w. So a slow w does not affect the live file. The temporary file needs space for the
// copy and 16 MiB more; otherwise Backup returns an error that wraps [syscall.ENOSPC] and leaves
// the space to the host. Backup removes the temporary file before it returns, even if w panics. If
// the process is killed, the next Open or Backup removes its temporary file, named
// "<path>.backing-up-…".
//
// If Backup returns an error, discard the data written to w: it is not a backup. If the context
// ended, the error is the context's. During and after Close it is [store.ErrClosed], unless the
// state was already copied. Otherwise it wraps the error of w or of the disk. Backup checks the
// context between writes; if a write hangs, w must end it. Even if it fails, Backup changes nothing
// in the store except the mark of its clock. A backup of a halted store has the state that its
// readers see.
//
// At the end, Backup compares the file with the copy. During the comparison, the file's pages
// cannot be reused, so the file grows by the size of all writes. The file also cannot outgrow its
// memory mapping, whose size is a power of two up to 1 GiB and a multiple of 1 GiB beyond. A commit
// that needs a larger mapping waits until the comparison ends, and so do reads of rows that are not
// in memory. The comparison takes some tenths of a second per GiB if the file is cached.
//
// Concurrent backups are independent; each needs its own space on disk. Backup takes half a MiB to
// 1 MiB of memory for a file of any size. The copy contains the signing secrets as the file stores
// them, and the free pages, which [Compact] omits.
func (s *Store) Backup(ctx context.Context, w io.Writer) (BackupInfo, error) {
	return s.engine.Backup(ctx, w)
}

// Halted returns the reason why the store has stopped writing, or nil if it has not stopped. A
// halted store resumes only when it is opened again.
func (s *Store) Halted() error { return s.engine.Halted() }

// Leave marks the file as left for another store, which place describes. From then on, Open returns
// [ErrLeft] for the file, except with the option [Left]. [Return] removes the mark, and so does
// Leave with an empty place.
func (s *Store) Leave(ctx context.Context, place string) error { return s.engine.Leave(ctx, place) }

// FileSize returns the size of the file and the size of its free pages, both in bytes. The free
// pages are counted at each commit. FileSize takes about a microsecond. It returns 0 and 0 once
// the store is closed.
func (s *Store) FileSize() (bytes, free int64) { return s.engine.FileSize() }

// Close waits for the transactions in progress, including steps that wait for a commit. Then it
// writes the alerts that are in memory only, and closes the file. From then on every method
// returns [store.ErrClosed]; closing again has no effect. If the disk hangs in a commit, Close
// waits for it.
func (s *Store) Close() error { return s.engine.Close() }
