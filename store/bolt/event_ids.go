package bolt

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

const (
	idsPerRun   = 128 << 10
	idsPerWrite = 4 * record.MaxIDEntries // written at a time, at least: they fill a page
)

// eventIDs finds events by their IDs, so that one that is published again is the same event.
//
// IDs may be random, and a row for each in a large tree would cost pages of the file with each
// event. So those of the newest events are in memory only, and each idsPerRun of them become a run:
// rows in bucketEventIDs in the order of keys, which are appended in the commits of later events
// and never changed. A run counts once its header is stored, with its last row. Until then Open reads
// its events again, and a crash loses nothing. A filter in memory says which runs may have a
// key. A run is dropped as a whole once the IDs of all its events are purged.
//
// A key is 64 bits of a hash of the ID. Whether the event of that number has the ID is looked up in
// the event, so that IDs with the same key are told apart, and rows may name events that were erased.
type eventIDs struct {
	secret idSecret

	// mu guards these against readers. Only steps of the writer change them.
	mu      sync.Mutex
	newer   idSet // in no run yet
	writing idSet // in the run that is being written
	filters []*idFilter
	last    uint64 // number of an event

	// For steps of the writer only.
	perRun  int                   // IDs, at least
	run     uint32                // that is being written, or is the next one
	sorting chan []record.IDEntry // has the entries of writing once they are sorted; nil: they are, or there are none
	sorted  []record.IDEntry      // of them, those that are not written yet
}

// An idSecret keeps those who choose IDs from choosing IDs with the same key.
type idSecret [16]byte

// loadIDSecret reads the secret of a file, and makes one if it has none.
func loadIDSecret(db *bbolt.DB) (secret idSecret, err error) {
	known := false
	err = db.View(func(tx *bbolt.Tx) error {
		known = copy(secret[:], tx.Bucket(bucketMeta).Get(keyIDSecret)) == len(secret)
		return nil
	})
	if err != nil || known {
		return secret, err
	}
	_, _ = rand.Read(secret[:]) // never fails
	return secret, db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyIDSecret, secret[:]) })
}

// keyOf returns the key of an event's ID.
func (s *idSecret) keyOf(account, id string) uint64 {
	var buffer [128]byte
	text := record.AppendPrefixed(append(buffer[:0], s[:]...), id, account)
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:])
}

// An idSet has the IDs of events, whose numbers ascend.
type idSet struct {
	idNumbers
	entries []record.IDEntry
}

func (s *idSet) add(e record.IDEntry) {
	s.put(e.Key, e.Number)
	s.entries = append(s.entries, e)
}

// idNumbers has the numbers of events by the keys of their IDs.
type idNumbers struct {
	numbers map[uint64]uint64
	more    map[uint64][]uint64 // if a key has several
}

func (s *idNumbers) put(key, number uint64) {
	if s.numbers == nil {
		s.numbers = make(map[uint64]uint64)
	}
	if _, known := s.numbers[key]; !known {
		s.numbers[key] = number
		return
	}
	if s.more == nil {
		s.more = make(map[uint64][]uint64)
	}
	s.more[key] = append(s.more[key], number)
}

// appendNumbers appends the numbers of a key.
func (s *idNumbers) appendNumbers(numbers []uint64, key uint64) []uint64 {
	if n, known := s.numbers[key]; known {
		numbers = append(append(numbers, n), s.more[key]...)
	}
	return numbers
}

// foundID is where the event of a key may be.
type foundID struct {
	key     uint64
	numbers []uint64
	runs    []uint32
	last    uint64 // number of all events
}

// find returns where the events of a key may be. A reader calls it before its transaction begins: what is
// not in memory any more is in the file by then.
func (s *eventIDs) find(key uint64) foundID {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := foundID{key: key, last: s.last}
	found.numbers = s.newer.appendNumbers(s.writing.appendNumbers(nil, key), key)
	for i, f := range s.filters {
		if f != nil {
			found.runs = f.appendRuns(found.runs, uint32(i)*runsPerFilter, key)
		}
	}
	return found
}

// event returns the segment and the index of the account's event of that ID, or ErrNotFound.
func (f *foundID) event(tx *bbolt.Tx, account, id string) (*record.Segment, int, error) {
	numbers := f.numbers
	if len(f.runs) > 0 {
		rows := tx.Bucket(bucketEventIDs).Cursor()
		for _, run := range f.runs {
			var err error
			if numbers, err = appendFromRun(rows, numbers, run, f.key); err != nil {
				return nil, 0, err
			}
		}
	}
	return eventAmong(tx, numbers, account, id)
}

// idRowKey returns the key of the row of a run that ends with that entry.
func idRowKey(run uint32, last record.IDEntry) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(idHeaderKey(run), last.Key), last.Number)
}

// idHeaderKey returns the key of a run's header: the numbers of its first and its last event.
func idHeaderKey(run uint32) []byte { return binary.BigEndian.AppendUint32(nil, run) }

// Bytes of their keys.
const (
	idHeaderSize = 4
	idRowSize    = 20
)

// idRunOf returns the run of a row.
func idRunOf(k []byte) uint32 { return binary.BigEndian.Uint32(k) }

// appendFromRun appends the numbers that a key has in a run.
func appendFromRun(rows *bbolt.Cursor, numbers []uint64, run uint32, key uint64) ([]uint64, error) {
	for k, value := rows.Seek(idRowKey(run, record.IDEntry{Key: key})); len(k) == idRowSize && idRunOf(k) == run; k, value = rows.Next() {
		var err error
		if numbers, err = record.AppendIDNumbers(numbers, value, key); err != nil || binary.BigEndian.Uint64(k[4:]) > key {
			return numbers, err
		}
	}
	return numbers, nil
}

// eventAmong returns the segment and the index of the account's event of that ID, whose
// number is one of those, or ErrNotFound.
func eventAmong(tx *bbolt.Tx, numbers []uint64, account, id string) (*record.Segment, int, error) {
	gone := metaNumber(tx, keyIDsGone)
	for _, number := range numbers {
		if number < gone {
			continue
		}
		segment, err := newSegments(tx).at(number)
		if errors.Is(err, errNoSegment) {
			continue // its account was erased
		}
		if err != nil {
			return nil, 0, err
		}
		i := segment.Index(number)
		if segment.Number(i) != number {
			continue // erased, too
		}
		if event, err := segment.Event(i); err != nil || event.ID == id && event.Account == account && !event.Forgotten {
			return segment, i, err
		}
	}
	return nil, 0, webhooks.ErrNotFound
}

// eventAfter returns the segment and the index of the account's event of that ID, if its
// number is greater, or ErrNotFound: a reader may see events whose commit is not known in
// memory yet.
func eventAfter(tx *bbolt.Tx, number uint64, account, id string) (*record.Segment, int, error) {
	for segment := range newSegments(tx).from(number + 1) {
		for i := max(0, segment.Index(number+1)); i < segment.Len(); i++ {
			if event, err := segment.Event(i); err == nil && segment.Number(i) > number && event.ID == id && event.Account == account && !event.Forgotten {
				return segment, i, nil
			}
		}
	}
	return nil, 0, webhooks.ErrNotFound
}

// readEventID returns the segment and the index of the account's event of that ID for a reader, or
// ErrNotFound. found is from before the transaction began.
func readEventID(tx *bbolt.Tx, found foundID, account, id string) (*record.Segment, int, error) {
	segment, i, err := found.event(tx, account, id)
	if errors.Is(err, webhooks.ErrNotFound) {
		return eventAfter(tx, found.last, account, id)
	}
	return segment, i, err
}

// knownEvent returns the event that a step is about to publish, if it is there already.
func (s *Store) knownEvent(b *batch, e *event) (known record.Event, err error) {
	found := s.ids.find(e.key)
	if inBatch := b.ids.appendNumbers(nil, e.key); inBatch != nil {
		if err := b.Flush(); err != nil {
			return known, err
		}
		found.numbers = append(found.numbers, inBatch...)
	}
	if found.numbers == nil && found.runs == nil {
		return known, webhooks.ErrNotFound
	}
	segment, i, err := found.event(b.tx, e.Account, e.ID)
	if err != nil {
		return known, err
	}
	return segment.Event(i)
}

// publishedEvent returns where an event is that earlier steps of the batch, or those before
// it, have published, or ErrNotFound. The batch was flushed.
func (s *Store) publishedEvent(b *batch, account, id string) (*record.Segment, int, error) {
	found := s.ids.find(s.ids.secret.keyOf(account, id))
	found.numbers = b.ids.appendNumbers(found.numbers, found.key)
	return found.event(b.tx, account, id)
}

// noteID adds the ID of an event to the batch.
func (s *Store) noteID(b *batch, key, number uint64) {
	if len(b.addedIDs) == 0 {
		b.AfterCommit(func() { s.ids.add(b.addedIDs) })
	}
	b.ids.put(key, number)
	b.addedIDs = append(b.addedIDs, record.IDEntry{Key: key, Number: number})
}

// add adds the IDs of events that were published.
func (s *eventIDs) add(entries []record.IDEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		s.newer.add(e)
	}
	s.last = entries[len(entries)-1].Number
	s.beginRun()
}

// beginRun begins to write a run if there are enough IDs for it and none is being written.
func (s *eventIDs) beginRun() {
	if len(s.writing.entries) > 0 || len(s.newer.entries) < s.perRun {
		return
	}
	s.writing, s.newer = s.newer, idSet{}
	entries := slices.Clone(s.writing.entries)
	sorting := make(chan []record.IDEntry, 1)
	s.sorting = sorting
	go func() {
		slices.SortFunc(entries, func(a, b record.IDEntry) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Number, b.Number))
		})
		sorting <- entries
	}()
}

// writeIDs writes some rows of a run, once a batch: of twice as many IDs as the batch adds, so that a
// run is written long before there are enough for the next one.
func (s *Store) writeIDs(b *batch) error {
	ids := &s.ids
	if b.wroteIDs || len(b.addedIDs) == 0 {
		return nil
	}
	b.wroteIDs = true
	select {
	case ids.sorted = <-ids.sorting:
		ids.sorting = nil
	default: // or nothing is to be sorted
	}
	if len(ids.sorted) == 0 {
		return nil
	}
	run, some := ids.run, ids.sorted[:min(max(2*len(b.addedIDs), idsPerWrite), len(ids.sorted))]
	b.tx.Bucket(bucketEventIDs).FillPercent = 1 // nothing is ever inserted
	for row := range slices.Chunk(some, record.MaxIDEntries) {
		if err := b.Put(bucketEventIDs, idRowKey(run, row[len(row)-1]), record.EncodeIDEntries(row)); err != nil {
			return err
		}
	}
	whole := len(some) == len(ids.sorted)
	if whole {
		first, last := ids.writing.entries[0], ids.writing.entries[len(ids.writing.entries)-1]
		if err := b.Put(bucketEventIDs, idHeaderKey(run), binary.BigEndian.AppendUint64(record.NumberKey(first.Number), last.Number)); err != nil {
			return err
		}
	}
	b.AfterCommit(func() { ids.wrote(some, whole) })
	return nil
}

// wrote notes that some rows of a run are in the file, or all of it.
func (s *eventIDs) wrote(some []record.IDEntry, whole bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sorted = s.sorted[len(some):]
	s.filter(s.run).add(s.run, some)
	if whole {
		s.filter(s.run).has(s.run)
		s.run++
		s.writing, s.sorted = idSet{}, nil
		s.beginRun()
	}
}

// dropIDs deletes rows of runs whose IDs are all purged, and of runs that a crash has cut short.
func (s *Store) dropIDs(b *batch, left *int) error {
	gone := metaNumber(b.tx, keyIDsGone)
	rows := b.tx.Bucket(bucketEventIDs).Cursor()
	for k, value := rows.First(); len(k) >= idHeaderSize && *left > 0; {
		run := idRunOf(k)
		_, last, whole := decodeIDHeader(k, value)
		if run == s.ids.run || whole && last >= gone {
			k, value = rows.Seek(idHeaderKey(run + 1))
			continue
		}
		var old [][]byte // what stays without its header counts as a run that was cut short
		for ; len(k) >= idHeaderSize && idRunOf(k) == run && *left > 0; k, _ = rows.Next() {
			old = append(old, slices.Clone(k))
			*left--
		}
		b.AfterCommit(func() { s.ids.drop(run) })
		if err := b.DeleteAll(bucketEventIDs, old); err != nil {
			return err
		}
		k, value = rows.Seek(idHeaderKey(run + 1))
	}
	return nil
}

// decodeIDHeader returns the numbers of the first and the last event of a run. ok is false if the row
// is no header.
func decodeIDHeader(k, value []byte) (first, last uint64, ok bool) {
	if len(k) != idHeaderSize || len(value) != 16 {
		return 0, 0, false
	}
	return binary.BigEndian.Uint64(value), binary.BigEndian.Uint64(value[8:]), true
}

// load fills the filters from the runs, and reads the events whose IDs are in none.
func (s *eventIDs) load(store *Store) (err error) {
	if s.secret, err = loadIDSecret(store.db); err != nil {
		return err
	}
	s.perRun = idsPerRun
	return store.db.View(func(tx *bbolt.Tx) error {
		from := max(s.loadRuns(tx), metaNumber(tx, keyIDsGone))
		defer store.newReadAhead(tx).segmentsFrom(from)()
		for segment := range newSegments(tx).from(from) {
			for i := max(0, segment.Index(from)); i < segment.Len(); i++ {
				event, err := segment.Event(i)
				if n := segment.Number(i); err == nil && n >= from && !event.Forgotten {
					s.newer.add(record.IDEntry{Key: s.secret.keyOf(event.Account, event.ID), Number: n})
				}
			}
		}
		s.last = tx.Bucket(bucketEvents).Sequence()
		s.beginRun()
		return nil
	})
}

// loadRuns fills the filters, and returns the first number that is in no run.
func (s *eventIDs) loadRuns(tx *bbolt.Tx) (next uint64) {
	var entries []record.IDEntry
	var whole *idFilter // of the run, if that is whole
	rows := tx.Bucket(bucketEventIDs).Cursor()
	for k, value := rows.First(); len(k) >= idHeaderSize; k, value = rows.Next() {
		run := idRunOf(k)
		if run >= s.run {
			whole = nil
		}
		s.run = run + 1
		if _, last, isHeader := decodeIDHeader(k, value); isHeader {
			next = last + 1
			whole = s.filter(run)
			whole.has(run)
		} else if whole != nil {
			var err error
			if entries, err = record.AppendIDEntries(entries[:0], value); err != nil {
				whole.addAll(run) // an event whose ID belongs into this row must fail
			}
			whole.add(run, entries)
		}
	}
	return next
}
