package bolt

import (
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// defaultWait is how long Open waits for the file to be closed elsewhere.
const defaultWait = 500 * time.Millisecond

// openFile opens a file with bbolt, which panics if it is damaged. It waits until then for
// the file to be closed elsewhere. If it cannot be opened, nothing holds it open or locked
// afterwards.
func openFile(path string, until time.Time, options *bbolt.Options) (db *bbolt.DB, file *os.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			db, err = nil, errDamaged(p)
			unlock(file) // closing does not, for bbolt leaves the file mapped into memory
			_ = file.Close()
		}
	}()
	options.Timeout = max(time.Until(until), 1) // 0 would be for ever
	options.NoStatistics = true                 // they cost a third of a lookup
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
		err = errForeign
	case errors.Is(err, bbolterrors.ErrChecksum), errors.Is(err, bbolterrors.ErrVersionMismatch):
		err = errDamaged(err)
	}
	return db, file, err
}

// errForeign is the error for a file of another program.
var errForeign = fmt.Errorf("%w: not a storageapi file", ErrSchema)

// errDamaged returns the error for a damaged file. cause may be what bbolt panicked with.
func errDamaged(cause any) error {
	return fmt.Errorf("%w: damaged, or copied while it was open: %v", ErrSchema, cause)
}

// confirm makes durable what was read of the file, before anything is written to it.
// The last commit may be in the system's memory only, if its last sync failed or its
// process was killed before that. The next commit would write to pages that the commit
// before the last one has, and a power loss then could take both. All but the meta page
// was synced before that was written. A sync alone does not help: the system may take
// what it failed to write for written.
func confirm(file *os.File, pageSize int) error {
	metas := make([]byte, 2*pageSize)
	if _, err := file.ReadAt(metas, 0); err != nil {
		return err
	}
	if _, err := file.WriteAt(metas, 0); err != nil {
		return err
	}
	return file.Sync()
}

// checkFile refuses a file that is shorter than it says, or in which a page is used twice. bbolt maps files into
// memory, and the system ends a process that reads there what the file does not
// have. What else is wrong with the file will be seen later.
func checkFile(path string, until time.Time) error {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return nil
	}
	db, file, err := openFile(path, until, &bbolt.Options{ReadOnly: true}) // reads no more than the file's first pages
	if errors.Is(err, ErrLocked) {
		return err
	}
	if err != nil {
		return nil
	}
	defer func() { _ = db.Close() }()
	tx, err := db.Begin(false)
	if err != nil {
		return nil
	}
	defer func() { _ = tx.Rollback() }()
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Size() < tx.Size() {
		return fmt.Errorf("the file is truncated: it has %d bytes and should have %d", info.Size(), tx.Size())
	}
	return checkTrees(file, info.Size())
}
