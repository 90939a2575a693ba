package pagefile

import (
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// DefaultWait is the default time to wait for a file that is open elsewhere.
const DefaultWait = 500 * time.Millisecond

// The errors of this package and of package schema. Package bolt documents them.
var (
	ErrLocked  = errors.New("in use by another process, or opened twice in this one")
	ErrSchema  = errors.New("unsupported file")
	ErrForeign = fmt.Errorf("%w: not a storageapi file", ErrSchema)
)

// Damaged returns the error for a damaged file. The cause may be the value of a bbolt panic.
func Damaged(cause any) error {
	return fmt.Errorf("%w: damaged, or copied while it was open: %v", ErrSchema, cause)
}

// Open opens a file with bbolt. If the file is open elsewhere, Open waits until the given time.
// After an error the file is neither open nor locked.
func Open(path string, until time.Time, options *bbolt.Options) (db *bbolt.DB, file *os.File, err error) {
	defer func() {
		if p := recover(); p != nil { // bbolt panics on damaged pages
			db, err = nil, Damaged(p)
			unlock(file) // closing does not unlock, because bbolt leaves the file mapped
			_ = file.Close()
		}
	}()
	options.Timeout = max(time.Until(until), 1) // 0 means forever
	options.NoStatistics = true                 // statistics cost a third of a lookup
	options.OpenFile = func(name string, flag int, mode os.FileMode) (*os.File, error) {
		var err error
		file, err = os.OpenFile(name, flag, mode)
		return file, err
	}
	db, err = bbolt.Open(path, 0o600, options)
	switch {
	case errors.Is(err, bbolterrors.ErrTimeout):
		err = ErrLocked
	case errors.Is(err, bbolterrors.ErrInvalid):
		err = ErrForeign
	case errors.Is(err, bbolterrors.ErrChecksum), errors.Is(err, bbolterrors.ErrVersionMismatch):
		err = Damaged(err)
	}
	return db, file, err
}

// Close closes a file that Open has opened with the option ReadOnly, and unlocks it, which bbolt
// does not do. Otherwise a child process that is being started would keep the lock until it
// executes its program, because it inherits all open files.
func Close(db *bbolt.DB, file *os.File) error {
	unlock(file)
	return db.Close()
}

// Precheck returns an error for a file that bbolt cannot open or use safely. Such a file has
// damage that is [Problem.Fatal], or is shorter than its pages: the system kills a process that
// reads mapped memory beyond the end of the file. Readers find other damage. parking is the name
// of the parking bucket, see [Check].
func Precheck(path string, until time.Time, parking string) error {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return nil
	}
	db, file, err := Open(path, until, &bbolt.Options{ReadOnly: true}) // reads only the first pages
	if errors.Is(err, ErrLocked) {
		return err
	}
	if err != nil {
		return nil
	}
	defer func() { _ = Close(db, file) }()
	tx, err := db.Begin(false)
	if err != nil {
		return nil
	}
	defer func() { _ = tx.Rollback() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("the file is truncated: it has %d bytes, want %d", info.Size(), tx.Size())
	}
	return skim(file, info.Size(), parking)
}

// Confirm writes the meta pages again and syncs the file. A process must call it before its first
// write.
//
// The last commit may exist only in the memory of the system, if its sync failed or its process was
// killed before the sync. The next commit would overwrite pages of the commit before the last, and
// a power loss could then destroy both commits. Except for the meta page, all pages of the last
// commit have been synced. Syncing the file again is not enough, because the system may treat data
// as written although writing it failed. So Confirm writes the meta pages again.
func Confirm(file *os.File, pageSize int) error {
	metas := make([]byte, 2*pageSize)
	if _, err := file.ReadAt(metas, 0); err != nil {
		return err
	}
	if _, err := file.WriteAt(metas, 0); err != nil {
		return err
	}
	return file.Sync()
}
