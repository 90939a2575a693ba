package bolt

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// eventIDs is the index by which an event is found by its id, so that one that is published
// again is the same event.
//
// Ids may be random, and a row for each in a large tree would cost pages of the file with
// each event. So they go through three levels, as in a log-structured merge tree. The ids of
// the newest events are in memory only. Once there are enough of them they are merged into
// rows of [record.MaxIDEntries] in bucketRecentIDs, see [Store.mergeIDs], and from there into
// such rows in bucketEventIDs once they change each row that they touch by several entries, see
// [merge.move]. Nothing is written for an
// id before that: the event itself is, and Open reads the events again whose ids were not
// merged. A crash changes nothing: a merge that is under way goes on where it was, however
// few ids arrive between one Open and the next.
//
// Whether an id is new is mostly known without looking for it in any of the three, see [idFilter].
//
// An entry has a key, of 64 bits, in place of an id. Whether the event of an entry has the
// id is looked up in the event, so that ids of the same key are told apart.
type eventIDs struct {
	secret idSecret

	// mu guards the sets against readers; the writer's steps alone change them. Ids
	// that are being merged are in merging until all of them are in the file.
	mu             sync.Mutex
	merging, newer *idSet
	last           uint64 // number of an event

	// For steps of the writer only.
	erased   map[uint64]bool // numbers in merging and newer of events that were erased
	top      uint64          // no key of timeKeys in the file is greater
	next     uint64          // what is in merging with a smaller key is in the file
	limit    int             // so many ids begin a merge
	arrived  int             // ids, since the last step of the merge
	wait     int             // ids that arrive before the next one
	rows     int             // that the merge has changed
	moving   uint64          // rows of bucketRecentIDs from that key on are moved next
	sweeping []byte          // the bucket whose rows are being looked through for purged ids
	swept    uint64          // none are in its rows before that key

	filter, nextFilter *idFilter // the one in use, and the one that is being filled; nil: none
	noFilter           bool      // one could not be filled, of a damaged file say: no other is made
	betweenRows        func()    // of tests: called after each transaction that reads rows for a filter
}

// idNumbers are numbers by key.
type idNumbers struct {
	numbers map[uint64]uint64
	more    map[uint64][]uint64 // if a key has several
}

// An idSet is entries in memory.
type idSet struct {
	idNumbers
	sorted [][]record.IDEntry // by key, each more than the next
	chunk  []record.IDEntry   // in no order, less than idChunk
	count  int
	last   uint64 // number
}

// idChunk is how many entries are sorted at a time.
const idChunk = 4096

// put adds a number.
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

// add adds an entry of a number that is greater than all before.
func (s *idSet) add(e record.IDEntry) {
	s.put(e.Key, e.Number)
	s.count++
	s.last = e.Number
	if s.chunk = append(s.chunk, e); len(s.chunk) == idChunk {
		s.sort()
	}
}

// sort sorts the last chunk, however large.
func (s *idSet) sort() {
	slices.SortFunc(s.chunk, compareIDs)
	s.sorted, s.chunk = append(s.sorted, s.chunk), nil
	s.join(func(last, before int) bool { return last >= before })
}

// join joins the last two of what is sorted, while it is to.
func (s *idSet) join(is func(last, before int) bool) {
	for n := len(s.sorted); n > 1 && is(len(s.sorted[n-1]), len(s.sorted[n-2])); n-- {
		s.sorted = append(s.sorted[:n-2], appendJoined(nil, s.sorted[n-2], s.sorted[n-1]))
	}
}

// parts returns the entries, in lists that are never changed.
func (s *idSet) parts() [][]record.IDEntry {
	return append(slices.Clone(s.sorted), slices.Clone(s.chunk))
}

// all returns the entries, sorted, of a set that nothing is added to any more.
func (s *idSet) all() []record.IDEntry {
	if len(s.chunk) > 0 {
		s.sort()
	}
	s.join(func(int, int) bool { return true })
	if len(s.sorted) == 0 {
		return nil
	}
	return s.sorted[0]
}

func compareIDs(a, b record.IDEntry) int {
	if a.Key != b.Key {
		return cmp.Compare(a.Key, b.Key)
	}
	return cmp.Compare(a.Number, b.Number)
}

// appendJoined appends the entries of two sorted lists, those that are in both once.
func appendJoined(to, a, b []record.IDEntry) []record.IDEntry {
	to = slices.Grow(to, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		switch c := compareIDs(a[0], b[0]); {
		case c < 0:
			to, a = append(to, a[0]), a[1:]
		case c > 0:
			to, b = append(to, b[0]), b[1:]
		default:
			to, a, b = append(to, a[0]), a[1:], b[1:]
		}
	}
	return append(append(to, a...), b...)
}

// appendNumbers appends the numbers of a key.
func (s *idNumbers) appendNumbers(numbers []uint64, key uint64) []uint64 {
	if n, known := s.numbers[key]; known {
		numbers = append(numbers, n)
		if s.more != nil {
			numbers = append(numbers, s.more[key]...)
		}
	}
	return numbers
}

// add adds the ids of events that were published.
func (s *eventIDs) add(entries []record.IDEntry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		s.newer.add(e)
	}
	s.arrived += len(entries)
	s.last = entries[len(entries)-1].Number
	for _, f := range []*idFilter{s.filter, s.nextFilter} {
		if f != nil {
			f.added += f.add(entries)
		}
	}
}

// inMemory returns the numbers that a key has in memory, and the last number of all.
func (s *eventIDs) inMemory(key uint64) (numbers []uint64, last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newer.appendNumbers(s.merging.appendNumbers(nil, key), key), s.last
}

// An idFinder finds ids in the file.
type idFinder [len(idBuckets)]*bbolt.Cursor

// idBuckets have the ids that are in the file.
var idBuckets = [...][]byte{bucketRecentIDs, bucketEventIDs}

func newIDFinder(tx *bbolt.Tx) (f idFinder) {
	for i, bucket := range idBuckets {
		f[i] = tx.Bucket(bucket).Cursor()
	}
	return f
}

// append appends the numbers that a key has.
func (f *idFinder) append(numbers []uint64, key uint64) ([]uint64, error) {
	var seek [8]byte
	binary.BigEndian.PutUint64(seek[:], key)
	for _, c := range f {
		_, value := c.Seek(seek[:])
		var err error
		if numbers, err = record.AppendIDNumbers(numbers, value, key); err != nil {
			return numbers, err
		}
	}
	return numbers, nil
}

// inFile appends the numbers that a key has in the file.
func inFile(tx *bbolt.Tx, numbers []uint64, key uint64) ([]uint64, error) {
	f := newIDFinder(tx)
	return f.append(numbers, key)
}

// eventAmong returns the segment and the index of the account's event of that id, whose
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

// eventAfter returns the segment and the index of the account's event of that id, if its
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

// knownEvent returns the event that a step is about to publish, if it is there already.
func (s *Store) knownEvent(b *batch, e *event) (known record.Event, err error) {
	inBatch := b.ids.appendNumbers(nil, e.key)
	if inBatch != nil {
		if err := b.Flush(); err != nil {
			return known, err
		}
	}
	if inBatch == nil && !s.ids.mayBeKnown(e.key) {
		return known, webhooks.ErrNotFound
	}
	numbers, _ := s.ids.inMemory(e.key)
	numbers = append(numbers, inBatch...)
	if e.key >= numberKeys || e.key <= s.ids.top {
		if b.inFile[0] == nil {
			b.inFile = newIDFinder(b.tx)
		}
		if numbers, err = b.inFile.append(numbers, e.key); err != nil {
			return known, err
		}
	}
	if numbers == nil {
		return known, webhooks.ErrNotFound
	}
	segment, i, err := eventAmong(b.tx, numbers, e.Account, e.ID)
	if err != nil {
		return known, err
	}
	return segment.Event(i)
}

// publishedEvent returns where an event is that earlier steps of the batch, or those before
// it, have published, or ErrNotFound. The batch was flushed.
func (s *Store) publishedEvent(b *batch, account, id string) (*record.Segment, int, error) {
	key := s.ids.secret.keyOf(account, id)
	numbers, _ := s.ids.inMemory(key)
	numbers, err := inFile(b.tx, b.ids.appendNumbers(numbers, key), key)
	if err != nil {
		return nil, 0, err
	}
	return eventAmong(b.tx, numbers, account, id)
}

// noteID adds the id of an event to the batch.
func (s *Store) noteID(b *batch, key, number uint64) {
	if len(b.added) == 0 {
		b.AfterCommit(func() { s.ids.add(b.added) })
	}
	b.ids.put(key, number)
	b.added = append(b.added, record.IDEntry{Key: key, Number: number})
}

// load reads the ids that are not merged yet, and what is known of the others.
func (s *eventIDs) load(store *Store) (err error) {
	if s.secret, err = loadIDSecret(store.db); err != nil {
		return err
	}
	s.merging, s.newer = new(idSet), new(idSet)
	err = store.db.View(func(tx *bbolt.Tx) error {
		from := max(metaNumber(tx, keyIDsMerged), metaNumber(tx, keyIDsGone))
		defer store.newReadAhead(tx).segmentsFrom(from)()
		under := decodeMerge(tx.Bucket(bucketMeta).Get(keyIDsMerging))
		s.next, s.limit = under.next, min(max(int(under.limit), minMerge), maxMerge)
		for segment := range newSegments(tx).from(from) {
			for i := max(0, segment.Index(from)); i < segment.Len(); i++ {
				event, err := segment.Event(i)
				n := segment.Number(i)
				if err != nil || n < from || event.Forgotten {
					continue
				}
				switch e := (record.IDEntry{Key: s.secret.keyOf(event.Account, event.ID), Number: n}); {
				case n > under.last:
					s.newer.add(e)
				case e.Key >= under.next:
					s.merging.add(e)
				}
			}
		}
		s.last = tx.Bucket(bucketEvents).Sequence()
		for _, bucket := range idBuckets {
			s.top = max(s.top, topOf(tx.Bucket(bucket)))
		}
		return nil
	})
	if s.merging.all(); s.merging.count == 0 && s.newer.count >= s.limit {
		s.begin()
	}
	s.moving = rand.Uint64() // or with few ids each time that the file is open, only the first rows would be moved
	s.arrived = mergeStep    // or less would arrive each time that the file is open, and nothing be merged
	return err
}

// topOf returns a key than which none of timeKeys in the bucket is greater.
func topOf(bucket *bbolt.Bucket) (top uint64) {
	c := bucket.Cursor()
	for k, value := c.Seek(record.NumberKey(numberKeys - 1)); k != nil; k, value = c.Prev() {
		entries, err := record.AppendIDEntries(nil, value)
		if err != nil {
			return numberKeys - 1
		}
		for _, e := range entries {
			if e.Key < numberKeys {
				top = e.Key
			}
		}
		if row := binary.BigEndian.Uint64(k); top == 0 && row < numberKeys {
			return row // it is empty, for its events were erased: the rows before it may not be
		}
		if top > 0 {
			break
		}
	}
	return top
}

// forget keeps the ids of events that were erased from being merged.
func (s *eventIDs) forget(entries []record.IDEntry) {
	for _, e := range entries {
		numbers, _ := s.inMemory(e.Key)
		if !slices.Contains(numbers, e.Number) {
			continue
		}
		if s.erased == nil {
			s.erased = make(map[uint64]bool)
		}
		s.erased[e.Number] = true
	}
}
