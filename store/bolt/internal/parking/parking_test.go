package parking_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/parking"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

type batch struct {
	*groupcommit.Tx
	parking *parking.Step
}

func (b batch) Flush() error { return b.parking.Unpark() }

// A parkingFile is a file whose free pages are parked.
type parkingFile struct {
	*testing.T
	db      *bbolt.DB
	file    *os.File
	writer  *groupcommit.Writer[batch]
	parking *parking.Parking
}

func open(t *testing.T, path string) *parkingFile {
	t.Helper()
	db, file, err := pagefile.Open(path, time.Now(), &bbolt.Options{NoSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		t.Fatal(err)
	}
	f := &parkingFile{T: t, db: db, file: file}
	if f.parking, err = parking.Open(db, file); err != nil {
		t.Fatal(err)
	}
	f.writer = groupcommit.New(db, groupcommit.Config[batch]{
		Begin:  func(tx *groupcommit.Tx) batch { return batch{tx, f.parking.Begin(tx)} },
		Commit: (*bbolt.Tx).Commit,
		Ended:  f.parking.Ended,
	})
	return f
}

func (f *parkingFile) run(do func(batch) error) {
	f.Helper()
	if err := f.writer.Run(f.Context(), do); err != nil {
		f.Fatal(err)
	}
}

// pages returns the size of the file and of its free list, in pages.
func (f *parkingFile) pages() (size, listed int) {
	f.Helper()
	err := f.db.View(func(tx *bbolt.Tx) error {
		list, ok := pagefile.ReadFreeList(f.file, f.db.Info().PageSize, tx.ID())
		if !ok {
			f.Error("the free list was not found")
		}
		size, listed = int(list.End), list.Pages
		return nil
	})
	if err != nil {
		f.Fatal(err)
	}
	return size, listed
}

// fill stores the rows from first to last, of about a page each.
func (f *parkingFile) fill(first, last int) {
	f.Helper()
	for n := first; n < last; n += 100 {
		f.run(func(b batch) error {
			for i := n; i < n+100; i++ {
				if err := b.Append(schema.Events, binary.BigEndian.AppendUint64(nil, uint64(i)), make([]byte, 3000)); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// The test frees most pages of a file and parks them. The free list must become short, the free
// bytes must stay the same, even after the file is opened again, and later rows must use the parked
// pages.
func TestPark_ManyFreePages_ShortensListAndKeepsSize(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "storage.db")
	if err := schema.CreateFile(path); err != nil {
		t.Fatal(err)
	}
	f := open(t, path)
	f.fill(0, 4000)
	left := 3900
	f.run(func(b batch) error { return b.DeleteBefore(schema.Events, 3900, &left) })
	f.run(func(b batch) error { return b.Put(schema.Meta, []byte("x"), nil) }) // so that the pages are free
	size, listed := f.pages()
	free := f.parking.FreeBytes()
	if !f.parking.IsLong(false) || f.parking.IsLong(true) {
		t.Errorf("IsLong with %d pages listed = %v, %v within a purge; want true, false", listed, f.parking.IsLong(false), f.parking.IsLong(true))
	}
	for more := true; more; {
		err := f.writer.RunAlone(t.Context(), func(b batch) (err error) {
			more, err = b.parking.Park(false)
			return err
		})
		if err != nil && !parking.DidNotFit(err) {
			t.Fatal(err)
		}
	}
	parkedSize, parkedListed := f.pages()
	most := pagefile.FreeListPage(f.db.Info().PageSize) + parking.MaxExtent + 64
	if listed < 3000 || parkedListed > most || parkedSize > size*105/100 {
		t.Errorf("parked: %d pages listed in a file of %d, want at most %d and about %d; %d were listed before", parkedListed, parkedSize, most, size, listed)
	}
	if diff := f.parking.FreeBytes() - free; max(diff, -diff) > free/20 {
		t.Errorf("%d bytes are free after parking, want about %d", f.parking.FreeBytes(), free)
	}
	free = f.parking.FreeBytes()
	if err := f.db.Close(); err != nil {
		t.Fatal(err)
	}
	f = open(t, path)
	defer func() { _ = f.db.Close() }()
	if got := f.parking.FreeBytes(); got != free {
		t.Errorf("%d bytes are free after Open, want %d", got, free)
	}
	f.fill(4000, 7500)
	if refilled, _ := f.pages(); refilled > size*110/100 {
		t.Errorf("the refilled file has %d pages, want about %d", refilled, size)
	}
}
