package eventlog

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// idsPerRun is the minimum number of IDs in a run.
const idsPerRun = 32 << 10

// idIndex finds events by ID, to recognize events that are published again.
//
// IDs may be random. If each ID had a row in a large tree, each event would write several pages of
// the file. So the IDs of the newest events are only in memory. Every idsPerRun of them become a
// run: rows in schema.EventIDs that are sorted by key. One of the next commits appends the run,
// which never changes afterwards. Open reads the events after the last run again, so a crash loses
// nothing. A filter in memory reports which runs may contain a key. A run is deleted as a whole,
// once the IDs of all its events have been purged.
//
// A key is 64 bits of a hash of the ID. Different IDs may share a key, so a lookup compares the ID
// with the ID stored in the event. Rows may refer to erased events. Entries in memory may refer to
// events that are not committed yet, or whose commit failed.
type idIndex struct {
	secret IDSecret

	// mu guards the following fields for readers. Only the Writer changes them.
	mu      sync.Mutex
	newer   idSet // IDs that are not in a run yet
	writing idSet // IDs of the next run, until it is committed
	filters []*idFilter
}

// An idWriter writes the runs of an idIndex.
type idWriter struct {
	*idIndex
	perRun    int
	committed int // number of IDs in newer whose events are committed
}

// An IDSecret is mixed into the keys of IDs, so that callers cannot choose IDs that share a key.
type IDSecret [16]byte

// KeyOf returns the key of an event ID.
func (s *IDSecret) KeyOf(account, id string) uint64 {
	var buffer [128]byte
	text := record.AppendPrefixed(append(buffer[:0], s[:]...), id, account)
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:])
}

// An idSet maps the keys of IDs to the numbers of their events. If a key is already used, the
// number is stored under the next free key.
type idSet struct {
	numbers map[uint64]uint64
	entries []record.IDEntry // sorted by number; by key after writeIDs has sorted them
}

func (s *idSet) add(e record.IDEntry) {
	if s.numbers == nil {
		s.numbers = make(map[uint64]uint64)
	}
	key := e.Key
	for _, taken := s.numbers[key]; taken; _, taken = s.numbers[key] {
		key++
	}
	s.numbers[key] = e.Number
	s.entries = append(s.entries, e)
}

// truncate removes all entries but the first n.
func (s *idSet) truncate(n int) {
	for _, e := range slices.Backward(s.entries[n:]) {
		key := e.Key
		for s.numbers[key] != e.Number {
			key++
		}
		delete(s.numbers, key)
	}
	s.entries = s.entries[:n]
}

// appendNumbers appends the numbers of events that may have the key.
func (s *idSet) appendNumbers(numbers []uint64, key uint64) []uint64 {
	for n, known := s.numbers[key]; known; n, known = s.numbers[key] {
		numbers = append(numbers, n)
		key++
	}
	return numbers
}

// A Found holds the candidates of a lookup: the numbers of events, and the runs that may contain
// the event's ID.
type Found struct {
	account, id string
	key         uint64
	numbers     []uint64
	runs        []uint64 // each run is named by the number of its last event
}

// Find returns the places where the account's event with that ID may be stored. Readers must call
// Find before their transaction begins: an ID is added in memory before its event is readable, and
// written to the file before it is removed from memory.
func (l *Log) Find(account, id string) Found {
	return l.ids.find(account, id, l.ids.secret.KeyOf(account, id))
}

func (x *idIndex) find(account, id string, key uint64) Found {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := Found{account: account, id: id, key: key, numbers: x.newer.appendNumbers(x.writing.appendNumbers(nil, key), key)}
	for _, f := range x.filters {
		found.runs = f.appendRuns(found.runs, key)
	}
	return found
}

// Event returns the event, or [apierr.ErrNotFound]. found must be the result of a Find call made
// before the transaction began.
func (v *View) Event(found Found) (Stored, error) {
	if v.log.options.Erasing(found.account) {
		return Stored{}, apierr.ErrNotFound
	}
	return found.event(v.tx)
}

// Event returns the account's event with that ID, or [apierr.ErrNotFound]. It also finds events
// published by earlier steps of the batch.
func (s *Step) Event(account, id string) (Stored, error) { return s.event(s.log.Find(account, id)) }

// Known returns the stored event that has the account and ID of e, or [apierr.ErrNotFound].
func (s *Step) Known(e *Event) (Stored, error) {
	return s.event(s.log.ids.find(e.Account, e.ID, e.key))
}

func (s *Step) event(found Found) (Stored, error) {
	if found.numbers == nil && found.runs == nil {
		return Stored{}, apierr.ErrNotFound
	}
	flushed := s.tx.Bucket(schema.Events).Sequence()
	if slices.ContainsFunc(found.numbers, func(n uint64) bool { return n > flushed }) {
		if err := s.Flush(); err != nil {
			return Stored{}, err
		}
	}
	return found.event(s.tx)
}

func (f *Found) event(tx *bbolt.Tx) (Stored, error) {
	numbers := f.numbers
	if len(f.runs) > 0 {
		rows := tx.Bucket(schema.EventIDs).Cursor()
		for _, run := range f.runs {
			var err error
			if numbers, err = AppendFromRun(rows, numbers, run, f.key); err != nil {
				return Stored{}, err
			}
		}
	}
	gone := Number(tx, schema.MetaIDsGone)
	for _, number := range numbers {
		if number < gone {
			continue
		}
		segment, err := NewSegments(tx).At(number)
		if errors.Is(err, errNoSegment) {
			continue // the event was erased, or is not committed
		}
		if err != nil {
			return Stored{}, err
		}
		i := segment.Index(number)
		if segment.Number(i) != number {
			continue // the event was erased
		}
		event, err := segment.Event(i)
		if err != nil || event.ID == f.id && event.Account == f.account && !event.Forgotten {
			return Stored{event, segment, i}, err
		}
	}
	return Stored{}, apierr.ErrNotFound
}

// begin begins a batch. If the previous batch was not committed, begin removes its IDs.
func (x *idWriter) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.newer.truncate(x.committed)
}

// noteID adds the ID of an event. It runs before readers can see the event.
func (s *Step) noteID(key, number uint64) {
	x := &s.writer.ids
	if x.uncommitted() == 0 {
		s.AfterCommit(x.commit)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.newer.add(record.IDEntry{Key: key, Number: number})
}

// uncommitted returns the number of IDs that the batch has added.
func (x *idWriter) uncommitted() int { return len(x.newer.entries) - x.committed }

// commit starts a run if there are enough IDs for it.
func (x *idWriter) commit() {
	x.committed = len(x.newer.entries)
	if len(x.writing.entries) > 0 || x.committed < x.perRun {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.writing, x.newer, x.committed = x.newer, idSet{}, 0
}

// writeIDs writes the next run if one is waiting and the batch publishes events.
func (s *Step) writeIDs() error {
	x := &s.writer.ids
	entries := x.writing.entries
	if s.wroteIDs || len(entries) == 0 || x.uncommitted() == 0 {
		return nil
	}
	s.wroteIDs = true
	run := slices.MaxFunc(entries, func(a, b record.IDEntry) int { return cmp.Compare(a.Number, b.Number) }).Number
	slices.SortFunc(entries, func(a, b record.IDEntry) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Number, b.Number))
	})
	s.tx.Bucket(schema.EventIDs).FillPercent = 1 // rows are only appended
	for row := range slices.Chunk(entries, record.MaxIDEntries) {
		if err := s.Put(schema.EventIDs, idRowKey(run, row[len(row)-1]), record.EncodeIDEntries(row)); err != nil {
			return err
		}
	}
	s.AfterCommit(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.filterOf(run).add(entries)
		x.writing = idSet{}
	})
	return nil
}

// dropIDs deletes the oldest runs if the IDs of all their events have been purged. It decrements
// left for each deleted row, and stops when left is 0 or less.
func (s *Step) dropIDs(left *int) error {
	gone := Number(s.tx, schema.MetaIDsGone)
	for *left > 0 {
		rows := s.tx.Bucket(schema.EventIDs).Cursor()
		k, _ := rows.First()
		if len(k) != IDRowSize || IDRunOf(k) >= gone {
			return nil
		}
		var old [][]byte // deleted after the loop: a cursor skips keys after a deletion
		for run := IDRunOf(k); len(k) == IDRowSize && IDRunOf(k) == run; k, _ = rows.Next() {
			old = append(old, slices.Clone(k))
		}
		*left -= len(old)
		s.AfterCommit(s.writer.ids.dropRun)
		if err := s.DeleteAll(schema.EventIDs, old); err != nil {
			return err
		}
	}
	return nil
}

// loadIDs reads the runs, and the events whose IDs are in no run.
func (w *Writer) loadIDs(db *bbolt.DB) error {
	x := &w.ids
	x.idIndex, x.perRun = &w.log.ids, idsPerRun
	return db.View(func(tx *bbolt.Tx) error {
		if secret := tx.Bucket(schema.Meta).Get(schema.MetaIDSecret); copy(x.secret[:], secret) != len(x.secret) {
			return record.ErrCorrupt
		}
		from := max(x.loadRuns(tx)+1, Number(tx, schema.MetaIDsGone))
		eachEvent(tx, from, math.MaxUint64, func(n uint64, event *record.Event) {
			if !event.Forgotten {
				x.newer.add(record.IDEntry{Key: x.secret.KeyOf(event.Account, event.ID), Number: n})
			}
		})
		x.commit()
		return nil
	})
}

// loadRuns fills the filters, and returns the number that names the last run.
func (x *idWriter) loadRuns(tx *bbolt.Tx) (last uint64) {
	var entries []record.IDEntry
	var filter *idFilter
	rows := tx.Bucket(schema.EventIDs).Cursor()
	for k, value := rows.First(); len(k) == IDRowSize; k, value = rows.Next() {
		if run := IDRunOf(k); run != last {
			last, filter = run, x.filterOf(run)
		}
		var err error
		if entries, err = record.AppendIDEntries(entries[:0], value); err != nil {
			filter.addAll() // a lookup that needs this row must fail instead of missing an ID
		}
		filter.add(entries)
	}
	return last
}

// idRowKey returns the key of the row whose last entry is last. A run is named by the number of
// its last event.
func idRowKey(run uint64, last record.IDEntry) []byte {
	return append(record.NumberKey(run), append(record.NumberKey(last.Key), record.NumberKey(last.Number)...)...)
}

// IDRowSize is the size of the keys in schema.EventIDs.
const IDRowSize = 24

// IDRunOf returns the run to which a row belongs.
func IDRunOf(k []byte) uint64 { return binary.BigEndian.Uint64(k) }

// AppendFromRun appends the event numbers that a run holds for a key.
func AppendFromRun(rows *bbolt.Cursor, numbers []uint64, run, key uint64) ([]uint64, error) {
	for k, value := rows.Seek(idRowKey(run, record.IDEntry{Key: key})); len(k) == IDRowSize && IDRunOf(k) == run; k, value = rows.Next() {
		var err error
		if numbers, err = record.AppendIDNumbers(numbers, value, key); err != nil || binary.BigEndian.Uint64(k[8:]) > key {
			return numbers, err
		}
	}
	return numbers, nil
}
