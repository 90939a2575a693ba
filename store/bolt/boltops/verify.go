package boltops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// A Report is the result of [Verify].
type Report struct {
	Bytes     int64 // size of the file
	FreeBytes int64 // size of its unused pages
	Schema    int   // see docs/format.md

	// Numbers of rows. If Counted is false, the numbers may be too low, because a bucket could not
	// be read to its end or the file has another schema.
	Counted                bool
	Keys, Webhooks, Events int
	Pending                int // number of pending deliveries

	Problems []Problem // the first 100
	More     int       // number of further problems
}

// maxProblems limits the memory of a Report.
const maxProblems = 100

// A Problem is damage found by [Verify].
type Problem struct {
	Bucket string // empty means the whole file
	Key    string // key of the row, quoted as in Go, or "page N"
	What   string // description of the damage, without row data and secrets
}

// String returns the problem as a sentence.
func (p Problem) String() string {
	if where := strings.TrimSpace(p.Bucket + " " + p.Key); where != "" {
		return where + ": " + p.What
	}
	return p.What
}

// Err returns nil if there are no problems. Otherwise it returns an error that wraps
// [bolt.ErrSchema] and names the first problem.
func (r *Report) Err() error {
	if len(r.Problems) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d problems, first: %s", bolt.ErrSchema, len(r.Problems)+r.More, r.Problems[0])
}

func (r *Report) add(p Problem) {
	if len(r.Problems) == maxProblems {
		r.More++
		return
	}
	r.Problems = append(r.Problems, p)
}

// Verify reads the whole file at path and reports damage: pages that bbolt could not read, records
// that cannot be decoded, and missing or superfluous rows. It never writes. sealer is the sealer
// given to [bolt.Sealed]; if it is nil, Verify checks only the form of sealed secrets.
//
// While Verify runs, the file is locked against [bolt.Open], but not against other calls to Verify
// or [Compact]. The error is an error of the system, or it wraps
//
//   - [bolt.ErrLocked] if the file is open: verify a copy made by [bolt.Store.Backup] instead,
//   - [bolt.ErrSchema] if another program made the file or it has another schema; the Report then
//     covers only the pages,
//   - [signing.ErrSealed] or [signing.ErrSealer] if the Sealer cannot open the data key.
//
// Damage in a name or in the body of an event may remain unnoticed, because these have no
// checksum. Verify takes some MiB of memory, and 32 KiB for each GiB of the file; if many rows of an
// index differ, it may take hundreds of MiB to name them. A file of 1 GiB takes some seconds.
func Verify(path string, sealer signing.Sealer) (Report, error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var report Report
	f, err := openReadOnly(path)
	if err == nil {
		defer f.close()
		_, err = f.verify(&report, sealer)
	}
	if err != nil {
		err = fmt.Errorf("verify %s: %w", path, err)
	}
	return report, err
}

// checkPages adds damaged pages to the report, and returns the buckets that contain them.
func (f *file) checkPages(report *Report) (broken map[string]bool) {
	result := pagefile.Check(f.file, f.bytes, string(schema.Spare), func(p pagefile.Problem) {
		report.add(Problem{p.Bucket, p.Where, p.What})
	})
	report.Bytes, report.FreeBytes = f.bytes, result.FreeBytes
	return result.Broken
}

// verify fills the report, and returns whether pages are damaged.
func (f *file) verify(report *Report, sealer signing.Sealer) (damagedPages bool, err error) {
	broken := f.checkPages(report)
	damagedPages = len(broken) > 0
	if broken[""] || broken[string(schema.Meta)] || f.db == nil {
		return damagedPages, nil // no bucket can be read safely
	}
	var sealed, mark []byte
	err = f.db.View(func(tx *bbolt.Tx) error {
		report.Schema = int(schema.Of(tx))
		if err := schema.Check(tx); err != nil {
			return err
		}
		meta := tx.Bucket(schema.Meta)
		sealed, mark = bytes.Clone(meta.Get(schema.MetaDataKey)), bytes.Clone(meta.Get(schema.MetaSealed))
		return nil
	})
	if err != nil {
		return damagedPages, err
	}
	key, err := openDataKey(report, sealer, sealed, mark)
	if err != nil {
		return damagedPages, err
	}
	return damagedPages, f.db.View(func(tx *bbolt.Tx) error {
		(&verifier{tx: tx, report: report, broken: broken, dataKey: key}).verify()
		return nil
	})
}

// openDataKey opens the file's data key. It must run outside transactions, because the Sealer may
// be slow. It returns nil if secrets are in plain text, if there is no Sealer, or if the data key
// is damaged. It adds a damaged data key to the report.
func openDataKey(report *Report, sealer signing.Sealer, sealed, mark []byte) (key *signing.DataKey, err error) {
	switch {
	case sealed != nil:
		key, _, err = signing.OpenDataKey(context.Background(), sealer, sealed)
	case mark != nil:
		err = signing.ErrDamaged
	}
	switch {
	case errors.Is(err, signing.ErrDamaged):
		report.add(Problem{string(schema.Meta), strconv.Quote(string(schema.MetaDataKey)), "is missing or cannot be opened: " + err.Error()})
		return nil, nil
	case sealer == nil:
		return nil, nil
	}
	return key, err
}

// A file is a locked file, open for reading.
type file struct {
	db    *bbolt.DB // nil if bbolt refuses the file as damaged
	file  *os.File
	bytes int64
}

func openReadOnly(path string) (*file, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	f := &file{bytes: info.Size()}
	f.db, f.file, err = pagefile.Open(path, time.Now().Add(pagefile.DefaultWait), &bbolt.Options{ReadOnly: true})
	if err == nil {
		return f, nil
	}
	if f.db = nil; !errors.Is(err, bolt.ErrSchema) || errors.Is(err, pagefile.ErrForeign) {
		return nil, err
	}
	f.file, err = os.Open(path) // to report the damage
	return f, err
}

func (f *file) close() {
	if f.db != nil {
		_ = pagefile.Close(f.db, f.file)
		return
	}
	_ = f.file.Close()
}
