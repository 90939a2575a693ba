package bolt

import (
	"bytes"
	"encoding/binary"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// findEvents looks for the next segment that has events of the account.
func findEvents(s *Store, tx *bbolt.Tx, e *erasure) (key []byte, more bool) {
	looked := 0
	for segment := range newSegments(tx).from(eventsFrom(e)) {
		if hasEventsOf(segment, e.account) {
			return segment.Key, false
		}
		if looked += segment.Len(); looked >= eraseLook {
			return record.NumberKey(segment.Last + 1), true
		}
	}
	return nil, false
}

func eventsFrom(e *erasure) uint64 {
	if len(e.next) < 8 {
		return 0
	}
	return binary.BigEndian.Uint64(e.next)
}

func hasEventsOf(segment *record.Segment, account string) bool {
	for i := range segment.Len() {
		if event, err := segment.Event(i); err == nil && event.Account == account {
			return true
		}
	}
	return false
}

// An eventEraser removes events of an account, in one step.
type eventEraser struct {
	*batch
	store *Store
	e     *erasure
	index map[string]bool     // rows to delete: r, f or e for bucketRuns, bucketFailed or bucketEventRuns, and the key
	gone  map[uint64]struct{} // numbers of the events and their deliveries
}

// eraseEvents removes the account's events with all that is kept of them. The numbers of other
// events, and where they stand, stay as they are.
func (s *Store) eraseEvents(b *batch, e *erasure, limit int) (next []byte, err error) {
	x := &eventEraser{batch: b, store: s, e: e, index: make(map[string]bool), gone: make(map[uint64]struct{})}
	var found []record.Segment
	from := eventsFrom(e)
	looked := 0
	next = beyond
	for segment := range newSegments(b.tx).from(from) {
		if looked >= limit {
			next = record.NumberKey(segment.Last)
			break
		}
		looked += int(segment.Last-segment.First) + 1
		if hasEventsOf(segment, e.account) {
			found = append(found, *segment)
		}
	}
	for i := range found {
		if err := x.segment(&found[i]); err != nil {
			return nil, err
		}
	}
	for key := range x.index {
		bucket := map[byte][]byte{'r': bucketRuns, 'f': bucketFailed, 'e': bucketEventRuns}[key[0]]
		if err := b.Delete(bucket, []byte(key[1:])); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// segment removes the account's events from a segment.
func (x *eventEraser) segment(found *record.Segment) error {
	tx := x.tx
	key := bytes.Clone(found.Key)
	value := bytes.Clone(tx.Bucket(bucketEvents).Get(key))
	segment, err := record.DecodeSegment(key, value) // apart from the pages, which change
	if err != nil {
		return nil
	}
	drop := make([]bool, segment.Len())
	for i := range segment.Len() {
		event, err := segment.Event(i)
		if err != nil || event.Account != x.e.account {
			continue
		}
		drop[i] = true
		n := segment.Number(i)
		x.gone[n] = struct{}{}
		x.index["e"+string(eventRunKey(n/runSize*runSize, event.Account, event.Type))] = true
		x.e.erased.Events++
		for number, webhook := range segment.Recipients(i) {
			if d, err := x.store.deliveryOf(tx, &segment, &event, number, string(webhook)); err != nil || d.State != "" {
				x.e.erased.Deliveries++
			}
			x.gone[number] = struct{}{}
			x.index["r"+string(runKey(number/runSize*runSize, string(webhook)))] = true
			x.index["f"+string(failedKey(number, string(webhook)))] = true
		}
	}
	if !slices.Contains(drop, true) {
		return nil
	}
	bodies, _ := record.DecodePack(bodiesOf(tx, &segment))
	events, kept, begin := segment.Without(bodies, func(i int) bool { return drop[i] })
	if err := x.PutOrDelete(bucketEvents, key, events); err != nil {
		return err
	}
	if err := x.PutOrDelete(bucketEvents, bodiesKey(key), kept); err != nil {
		return err
	}
	for _, bucket := range [][]byte{bucketFresh, bucketSkipped} {
		if err := x.bits(bucket, key, begin); err != nil {
			return err
		}
	}
	return x.attemptsOf(&segment)
}

// bits takes the numbers that are gone out of a bitmap, whose first number will be that of its segment.
func (x *eventEraser) bits(bucket, key []byte, first uint64) error {
	value := x.Get(bucket, key)
	if value == nil {
		return nil
	}
	old, err := record.DecodeBitmap(value)
	var kept record.Bitmap
	kept.Reset(first)
	old.Each(func(n uint64) bool {
		if _, gone := x.gone[n]; !gone && n >= first && first > 0 {
			kept.Set(n)
		}
		return true
	})
	if err != nil || kept.IsEmpty() {
		return x.Delete(bucket, bytes.Clone(key))
	}
	return x.Put(bucket, bytes.Clone(key), kept.Encode())
}

// attemptsOf removes pending records and attempts of the deliveries of a segment that are gone.
func (x *eventEraser) attemptsOf(segment *record.Segment) error {
	isGone := func(n uint64) bool { _, gone := x.gone[n]; return gone }
	for _, bucket := range [][]byte{bucketPending, bucketAttempts, bucketLastAttempts} {
		var old [][]byte
		c := x.tx.Bucket(bucket).Cursor()
		for k, _ := c.Seek(record.NumberKey(segment.First)); len(k) >= 8; k, _ = c.Next() {
			n := binary.BigEndian.Uint64(k)
			if n > segment.Last {
				break
			}
			if isGone(n) {
				old = append(old, bytes.Clone(k))
			}
		}
		if err := x.DeleteAll(bucket, old); err != nil {
			return err
		}
	}
	var old [][]byte
	var packs []row
	c := x.tx.Bucket(bucketFirstAttempts).Cursor()
	for k, value := c.Seek(segment.Key); bytes.HasPrefix(k, segment.Key); k, value = c.Next() {
		old = append(old, bytes.Clone(k))
		pack, _ := record.DecodePack(bytes.Clone(value)) // of one that cannot be read nothing is left
		if kept := pack.Without(isGone); kept != nil {
			pack, _ = record.DecodePack(kept)
			packs = append(packs, row{firstAttemptsKey(segment.Last, binary.BigEndian.Uint64(pack.At(0))), kept})
		}
	}
	if err := x.DeleteAll(bucketFirstAttempts, old); err != nil {
		return err
	}
	for _, p := range packs {
		if err := x.Put(bucketFirstAttempts, p.key, p.value); err != nil {
			return err
		}
	}
	return nil
}
