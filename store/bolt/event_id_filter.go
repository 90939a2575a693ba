package bolt

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// An idFilter tells of most keys from numberKeys on that no event has one. So publishing under a new id
// that does not ascend searches neither memory nor two large trees. It is a Bloom filter in which the bits of
// a key are in one word: it may take a key for known that is not, and never the other way round.
//
// What makes that true: a filter is filled from a step of the writer on. The entries that are in memory
// at that step are handed to the goroutine that fills it. Each commit from then on adds its entries where it
// adds them to those in memory. All others are in the file, which the goroutine reads: bucketRecentIDs first, so
// that an entry that is moved meanwhile is met in bucketEventIDs. Nothing is ever taken out.
type idFilter struct {
	words []uint64
	found int // keys that it was filled with; valid once done is closed
	added int // keys of commits since it began to be filled; the writer's

	stopped atomic.Bool
	done    chan struct{} // closed once it is filled, or err says why not
	err     error
}

const (
	minFilter   = 8 << 10 // words: 64 KiB
	maxFilter   = 4 << 20 // words: 32 MiB, and as much again while the next one is filled
	keysPerWord = 6       // in a new filter, which takes 2 % of new keys for known; 12 in a full one: 13 %
	bitsPerKey  = 4
	keysPerLeaf = 256 // of the trees, about
	filterRows  = 256 // are read in a transaction, during which no page is freed
	filterAhead = 32  // leaves that have about as many rows
)

// errStopped says that the file is being closed.
var errStopped = errors.New("the file is being closed")

// newIDFilter returns a filter for so many keys.
func newIDFilter(keys int) *idFilter {
	words := min(max(keys/keysPerWord, minFilter), maxFilter)
	return &idFilter{words: make([]uint64, words), done: make(chan struct{})}
}

// place returns the word that has the bits of a key, and these.
func (f *idFilter) place(key uint64) (word *uint64, mask uint64) {
	spread := key << 1 // of a hash, and in the order of the rows
	if key < randomKeys {
		spread = key * 0x9e3779b97f4a7c15
	}
	for i := range bitsPerKey {
		mask |= 1 << (key >> (6 * i) & 63) // these are of a hash, too
	}
	at, _ := bits.Mul64(spread, uint64(len(f.words)))
	return &f.words[at], mask
}

// add adds the keys of entries, and returns how many it added. It may be called concurrently.
func (f *idFilter) add(entries []record.IDEntry) (added int) {
	for _, e := range entries {
		if e.Key >= numberKeys {
			word, mask := f.place(e.Key)
			atomic.OrUint64(word, mask)
			added++
		}
	}
	return added
}

// mayHave reports whether a key from numberKeys on was added, or may have been.
func (f *idFilter) mayHave(key uint64) bool {
	word, mask := f.place(key)
	return atomic.LoadUint64(word)&mask == mask
}

// isFull reports whether a new one should take its place. One of the largest size is full once it has twice
// the keys that it was filled with: events may have been purged since.
func (f *idFilter) isFull() bool {
	return f.found+f.added > 2*max(f.found, keysPerWord*len(f.words))
}

// fill adds the keys of these entries, and those of the file.
func (f *idFilter) fill(s *Store, inMemory [][]record.IDEntry) {
	defer close(f.done)
	defer func() {
		if p := recover(); p != nil {
			f.err = fmt.Errorf("panic: %v", p)
		}
	}()
	catchFaults()
	for _, entries := range inMemory {
		f.found += f.add(entries)
	}
	for _, bucket := range idBuckets {
		for from := uint64(numberKeys); from != 0; {
			err := s.db.View(func(tx *bbolt.Tx) (err error) {
				s.newReadAhead(tx).leavesFrom(tx.Bucket(bucket), from, filterAhead)
				from, err = f.readRows(tx, bucket, from)
				return err
			})
			if s.ids.betweenRows != nil {
				s.ids.betweenRows()
			}
			if f.stopped.Load() {
				err = errStopped
			}
			if err != nil {
				f.err = err
				return
			}
			runtime.Gosched()
		}
	}
}

// readRows adds the keys in some rows of a bucket, and returns the key to go on with; 0: none.
func (f *idFilter) readRows(tx *bbolt.Tx, bucket []byte, from uint64) (next uint64, err error) {
	gone := metaNumber(tx, keyIDsGone)
	rows := tx.Bucket(bucket).Cursor()
	var entries []record.IDEntry
	for range filterRows {
		row, value, err := rowWith(rows, from)
		if err != nil {
			return 0, err
		}
		if entries, err = record.AppendIDEntries(entries[:0], value); err != nil {
			return 0, err // an event whose id belongs into this row must fail
		}
		f.found += f.add(slices.DeleteFunc(entries, func(e record.IDEntry) bool { return e.Number < gone }))
		if row == lastRow {
			return 0, nil
		}
		from = row + 1
	}
	return from, nil
}

// renewFilter takes the filter into use that was being filled, once that is done, and begins to fill one
// where there is none or it is full. It is called in a step, before its ids are added.
func (s *eventIDs) renewFilter(store *Store, tx *bbolt.Tx) {
	if next := s.nextFilter; next != nil {
		select {
		case <-next.done:
		default:
			return
		}
		s.nextFilter = nil
		if s.noFilter = next.err != nil; !s.noFilter {
			s.filter = next
		}
	}
	if s.noFilter || s.filter != nil && !s.filter.isFull() {
		return
	}
	leaves, ahead := 0, store.newReadAhead(tx)
	for _, bucket := range idBuckets {
		leaves += ahead.leavesIn(tx.Bucket(bucket))
	}
	s.nextFilter = newIDFilter(leaves * keysPerLeaf)
	go s.nextFilter.fill(store, append(s.merging.parts(), s.newer.parts()...))
}

// stopFilter waits until no filter is being filled. No step is taken any more.
func (s *eventIDs) stopFilter() {
	if s.nextFilter != nil {
		s.nextFilter.stopped.Store(true)
		<-s.nextFilter.done
	}
}

// mayBeKnown reports whether an event may have the key that was committed before.
func (s *eventIDs) mayBeKnown(key uint64) bool {
	return key < numberKeys || s.filter == nil || s.filter.mayHave(key)
}
