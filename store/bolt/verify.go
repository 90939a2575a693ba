package bolt

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/signing"
)

// A Report says what [Verify] has found.
type Report struct {
	Bytes     int64 // of the file
	FreeBytes int64 // of them, in pages that are not in use
	Schema    int   // see docs/format.md

	// What there is. If Counted is false these are less than there is, or 0: buckets could not be read to their
	// ends, or the schema is another one.
	Counted                bool
	Keys, Webhooks, Events int
	Pending                int // deliveries, as Open would put them into the queue

	Problems []Problem // the first 100
	More     int       // how many were found besides
}

// maxProblems bounds the memory of a Report.
const maxProblems = 100

// A Problem is something that is wrong.
type Problem struct {
	Bucket string // in which; empty if it is of all of the file
	Key    string // of the row, quoted as in Go, or "page N"
	What   string // is wrong. It holds nothing of the row, and no secret
}

// String returns the problem as a sentence.
func (p Problem) String() string {
	where := p.Bucket
	if p.Key != "" {
		where += " " + p.Key
	}
	if where == "" {
		return p.What
	}
	return where + ": " + p.What
}

// Err returns nil if there are no problems, or an error that wraps [ErrSchema] and has the first of them.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d problems, the first: %s", ErrSchema, len(r.Problems)+r.More, r.Problems[0])
}

// add notes a problem.
func (r *Report) add(bucket, key, format string, args ...any) {
	if len(r.Problems) == maxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, Problem{Bucket: bucket, Key: key, What: fmt.Sprintf(format, args...)})
}

// Verify reads all of the file at path, and reports what is wrong with it and where: pages of bbolt's
// that do not fit, records that cannot be read, rows that another bucket lacks or should not have, and
// deliveries that are pending in no event. It never writes. With [Sealed] it opens signing secrets that are
// sealed, too; without, it looks at their form only. Other options change nothing.
//
// The file is locked against [Open] meanwhile, but not against other calls of Verify and [Compact]. The error is not
// about what is in the file: it wraps [ErrLocked] if that is open, so verify a copy by [Store.Backup]; or what
// the system says; or [ErrSchema] if the file is not ours, or of another schema. The Report is of the pages alone
// then: nothing is counted.
//
// A file without problems can be damaged nonetheless, in the bytes of a name or of an event's body: those have no
// checksum. Verify takes some MiB of memory, and 32 KiB for each GiB of the file. A file of 1 GiB takes some seconds.
func Verify(path string, options ...Option) (Report, error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var s Store
	for _, option := range options {
		option(&s)
	}
	var report Report
	f, err := openReadOnly(path)
	if err != nil {
		return report, fmt.Errorf("verify %s: %w", path, err)
	}
	defer f.close()
	if _, err := f.verify(&report, s.keys); err != nil {
		return report, fmt.Errorf("verify %s: %w", path, err)
	}
	return report, nil
}

// verify also reports whether pages are damaged, so that [Compact] refuses the file.
func (f *readOnlyFile) verify(report *Report, keys *signing.Keyring) (pages bool, err error) {
	report.Bytes = f.bytes
	p := checkPages(f.file, f.bytes, report)
	pages = len(report.Problems) > 0
	if p.broken[""] || p.broken[string(bucketMeta)] || f.db == nil {
		return pages, nil // no bucket can be relied on
	}
	tx, err := f.db.Begin(false)
	if err != nil {
		return pages, err
	}
	defer func() { _ = tx.Rollback() }()
	report.Schema = int(schemaOf(tx))
	if err := checkSchema(tx); err != nil {
		return pages, err
	}
	newRowChecker(tx, report, p.broken, keys).run()
	return pages, nil
}

// A readOnlyFile is a file that is locked, and not written.
type readOnlyFile struct {
	db    *bbolt.DB // nil if bbolt does not open it, for it is damaged
	file  *os.File
	bytes int64
}

func openReadOnly(path string) (*readOnlyFile, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	f := &readOnlyFile{bytes: info.Size()}
	f.db, f.file, err = openFile(path, time.Now().Add(defaultWait), &bbolt.Options{ReadOnly: true})
	if err == nil {
		return f, nil
	}
	if f.db = nil; !errors.Is(err, ErrSchema) || errors.Is(err, errForeign) {
		return nil, err
	}
	if f.file, err = os.Open(path); err != nil { // what is wrong with it can be told
		return nil, err
	}
	return f, nil
}

func (f *readOnlyFile) close() {
	if f.db != nil {
		_ = f.db.Close() // and the file with it
		return
	}
	_ = f.file.Close()
}
