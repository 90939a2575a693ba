package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// A seen is a file of which what was read is kept, in its place.
type seen struct {
	io.ReaderAt
	mu   sync.Mutex
	read []byte
}

func (s *seen) ReadAt(p []byte, at int64) (int, error) {
	n, err := s.ReaderAt.ReadAt(p, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	copy(s.read[at:], p[:n])
	return n, err
}

// TestReadAhead: segments are read ahead whole, and no bodies.
func TestReadAhead(t *testing.T) {
	s := openTemp(t)
	const events, webhooksEach = 100, 300 // so many that records go on after their page
	for i := range webhooksEach {
		id := fmt.Sprintf("wh_%026d", i)
		if err := s.CreateWebhook(t.Context(), webhooks.Webhook{
			ID: id, Account: "acct", URL: "https://example.com/", WebhookHealth: webhooks.WebhookHealth{Active: true}, Events: []webhooks.EventType{webhooks.TypeBalanceLow},
		}, webhooks.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	tail := []byte("the end of a body")
	for i := range events {
		event := webhooks.EncodedEvent{
			ID: fmt.Sprint("evt_", i), Account: "acct", Type: webhooks.TypeBalanceLow, Body: append(make([]byte, 16<<10), tail...),
		}
		if i%4 > 0 {
			event.Account = "nobody" // has no webhooks
		}
		if _, err := s.Enqueue(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	err := s.db.View(func(tx *bbolt.Tx) error {
		file := &seen{ReaderAt: s.file, read: make([]byte, tx.Size())}
		r := s.newReadAhead(tx)
		r.file = file
		_ = r.segmentsFrom(0)
		r.all.Wait() // not stopped before it has done all
		found := 0
		for segment := range newSegments(tx).from(0) {
			value := tx.Bucket(bucketEvents).Get(segment.Key)
			if found++; !bytes.Contains(file.read, value) {
				t.Errorf("segment %d, of %d bytes, was not read", found, len(value))
			}
		}
		if found == 0 {
			t.Error("coverage precondition failed: the file has no segments")
		}
		if bytes.Contains(file.read, tail) {
			t.Error("bodies were read")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReadAheadStops: once stop has returned nothing is read any more, and nothing waits.
func TestReadAheadStops(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		// A branch whose pages are all leaves that cannot be read.
		const size, leaves = 4096, 200
		image := make([]byte, (3+leaves)*size)
		pageAt(image[2*size:], branchPage, leaves)
		for i := range leaves {
			branchAt(image[2*size:], i, uint64(10*i), uint64(3+i))
		}
		reads := make(chan int64)
		r := &readAhead{file: heldFile{bytes.NewReader(image), reads}, pageSize: size, end: 3 + leaves, events: 2, leaves: make(chan uint64, 4*aheadReaders)}
		stop := r.segmentsFrom(0)
		for range 50 {
			<-reads
		}
		var ended sync.WaitGroup
		more := 0
		ended.Go(func() {
			for range reads {
				more++
			}
		})
		stop()
		close(reads) // who reads now panics
		ended.Wait()
		if more > 2*aheadReaders {
			t.Errorf("%d reads more, of which %d at most were under way", more, aheadReaders+1)
		}
	})
}

// A heldFile says where it is read, and waits until that is heard.
type heldFile struct {
	io.ReaderAt
	reads chan<- int64
}

func (f heldFile) ReadAt(p []byte, at int64) (int, error) {
	f.reads <- at
	return f.ReaderAt.ReadAt(p, at)
}

// pageAt makes the start of a page, see verify_pages.go.
func pageAt(page []byte, kind, count uint16) {
	binary.NativeEndian.PutUint16(page[pageFlags:], kind)
	binary.NativeEndian.PutUint16(page[pageCount:], count)
}

// branchAt makes an element of a branch, whose key is a number.
func branchAt(page []byte, i int, number, child uint64) {
	e, key := page[pageHeader+i*element:], 4096-8*(i+1)
	binary.NativeEndian.PutUint32(e, uint32(key-pageHeader-i*element))
	binary.NativeEndian.PutUint32(e[4:], 8)
	binary.NativeEndian.PutUint64(e[8:], child)
	binary.BigEndian.PutUint64(page[key:], number)
}

const smallPage = 1024

// smallSegments makes a file of numbers with records and bodies, of all sizes, and returns it with
// the root of the tree they are in.
func smallSegments(tb testing.TB) (file []byte, root uint64, records map[uint64][]byte) {
	path := filepath.Join(tb.TempDir(), "bolt.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: smallPage})
	if err != nil {
		tb.Fatal(err)
	}
	records = make(map[uint64][]byte)
	if err := db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucket(bucketEvents)
		for i := uint64(0); i < 400 && err == nil; i++ {
			key := record.NumberKey(3 * i)
			records[3*i] = bytes.Repeat(fmt.Appendf(nil, "%08d", i), int(2+i%7*60))
			err = bucket.Put(key, records[3*i])
			if i%5 > 0 { // so that some leaves begin with bodies
				err = errors.Join(err, bucket.Put(bodiesKey(key), make([]byte, i%5*100)))
			}
		}
		return err
	}); err != nil {
		tb.Fatal(err)
	}
	if err := db.View(func(tx *bbolt.Tx) error {
		root = uint64(tx.Bucket(bucketEvents).Root())
		return nil
	}); err != nil {
		tb.Fatal(err)
	}
	if err := db.Close(); err != nil {
		tb.Fatal(err)
	}
	if file, err = os.ReadFile(path); err != nil {
		tb.Fatal(err)
	}
	return file, root, records
}

func newSmallReadAhead(file io.ReaderAt, size int, root uint64) *readAhead {
	return &readAhead{file: file, pageSize: smallPage, end: uint64(size / smallPage), events: root, leaves: make(chan uint64, 4*aheadReaders)}
}

// TestReadAheadFindsEach: a segment is found by its key, and by the numbers before that are its own.
func TestReadAheadFindsEach(t *testing.T) {
	whole, root, records := smallSegments(t)
	for i := uint64(1); i < 400; i++ {
		key, want := 3*i, records[3*i]
		for _, before := range []uint64{0, 2} {
			file := &seen{ReaderAt: bytes.NewReader(whole), read: make([]byte, len(whole))}
			r := newSmallReadAhead(file, len(whole), root)
			_ = r.segmentsFrom(key - before)
			r.all.Wait()
			if !bytes.Contains(file.read, want) {
				t.Fatalf("number %d: the segment %d was not read", key-before, key)
			}
		}
	}
}

// FuzzReadAhead reads ahead in a file in which bytes were changed: it ends, and never panics.
func FuzzReadAhead(f *testing.F) {
	whole, root, _ := smallSegments(f)
	random := rand.New(rand.NewPCG(1, 1))
	f.Add([]byte{}) // nothing is changed
	for n := range 60 {
		var changes []byte
		for range 1 + n {
			page := random.IntN(len(whole) / smallPage)
			if n%3 > 0 {
				page = int(root)
			}
			changes = binary.BigEndian.AppendUint32(changes, uint32(page*smallPage+random.IntN(smallPage)))
			changes = append(changes, byte(random.IntN(256)))
		}
		f.Add(changes)
	}
	f.Fuzz(func(t *testing.T, changes []byte) {
		image := bytes.Clone(whole)
		for ; len(changes) >= 5; changes = changes[5:] {
			image[int(binary.BigEndian.Uint32(changes))%len(image)] = changes[4]
		}
		r := newSmallReadAhead(bytes.NewReader(image), len(image), root)
		_ = r.segmentsFrom(0)
		r.all.Wait()
	})
}

// TestReadAheadLoop: a branch that is below itself ends.
func TestReadAheadLoop(t *testing.T) {
	const size, branches = 4096, 150
	image := make([]byte, 3*size)
	pageAt(image[2*size:], branchPage, branches)
	for i := range branches {
		branchAt(image[2*size:], i, uint64(1000*i), 2)
	}
	r := &readAhead{file: bytes.NewReader(image), pageSize: size, end: 3, events: 2, leaves: make(chan uint64, 4*aheadReaders)}
	_ = r.segmentsFrom(0)
	r.all.Wait()
}
