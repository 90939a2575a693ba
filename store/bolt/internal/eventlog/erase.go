package eventlog

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// eraseLook is the number of events that FindOf examines before it gives up.
const eraseLook = 10_000

// FindOf returns the last number of the next segment that has events of the account. It starts at
// the segment that contains the number from. If it gives up early, more is true and number is the
// number to continue with.
func (v *View) FindOf(account string, from uint64) (number uint64, found, more bool) {
	looked := 0
	for segment := range v.segments.from(from) {
		if hasEventsOf(segment, account) {
			return segment.Last, true, false
		}
		if looked += segment.Len(); looked >= eraseLook {
			return segment.Last + 1, false, true
		}
	}
	return 0, false, false
}

func hasEventsOf(segment *record.Segment, account string) bool {
	for i := range segment.Len() {
		if event, err := segment.Event(i); err == nil && event.Account == account {
			return true
		}
	}
	return false
}

// Erased counts the records removed from an account.
type Erased struct{ Events, Deliveries int }

// An eventEraser removes events of one account, in one step.
type eventEraser struct {
	*Step
	account string
	erased  Erased
	// Index rows to delete. Each is a letter (r, f or e for schema.Runs, schema.Failed or
	// schema.EventRuns), followed by the key.
	index map[string]bool
	gone  map[uint64]struct{} // numbers of the events and their deliveries
}

// Erase removes the account's events with their deliveries and attempts. It starts at the number
// from and ends after about limit numbers, at the end of a segment. It returns the number to
// continue with, and whether more events may remain. Numbers and keys of other events do not
// change. The batch must be flushed.
func (s *Step) Erase(account string, from uint64, limit int) (next uint64, more bool, erased Erased, err error) {
	x := &eventEraser{Step: s, account: account, index: make(map[string]bool), gone: make(map[uint64]struct{})}
	var found []record.Segment
	looked := 0
	for segment := range NewSegments(s.tx).from(from) {
		if looked >= limit {
			next, more = segment.Last, true
			break
		}
		looked += int(segment.Last-segment.First) + 1
		if hasEventsOf(segment, account) {
			found = append(found, *segment)
		}
	}
	for i := range found {
		if err := x.segment(&found[i]); err != nil {
			return 0, false, erased, err
		}
	}
	for key := range x.index {
		bucket := map[byte][]byte{'r': schema.Runs, 'f': schema.Failed, 'e': schema.EventRuns}[key[0]]
		if err := s.Delete(bucket, []byte(key[1:])); err != nil {
			return 0, false, erased, err
		}
	}
	return next, more, x.erased, nil
}

// segment removes the account's events from a segment.
func (x *eventEraser) segment(found *record.Segment) error {
	tx := x.tx
	key := bytes.Clone(found.Key)
	value := bytes.Clone(tx.Bucket(schema.Events).Get(key))
	segment, err := record.DecodeSegment(key, value) // a copy, because the pages will change
	if err != nil {
		return nil
	}
	drop := make([]bool, segment.Len())
	for i := range segment.Len() {
		event, err := segment.Event(i)
		if err != nil || event.Account != x.account {
			continue
		}
		drop[i] = true
		n := segment.Number(i)
		x.gone[n] = struct{}{}
		x.index["e"+string(eventRunKey(n/RunSize*RunSize, event.Account, event.Type))] = true
		x.erased.Events++
		for number, webhook := range segment.Recipients(i) {
			if d, err := x.log.deliveryOf(tx, &segment, &event, number, string(webhook)); err != nil || d.State != "" {
				x.erased.Deliveries++
			}
			x.gone[number] = struct{}{}
			x.index["r"+string(runKey(number/RunSize*RunSize, string(webhook)))] = true
			x.index["f"+string(FailedKey(number, string(webhook)))] = true
		}
	}
	if !slices.Contains(drop, true) {
		return nil
	}
	bodies, _ := record.DecodePack(bodiesOf(tx, &segment))
	events, kept, begin := segment.Without(bodies, func(i int) bool { return drop[i] })
	if err := x.PutOrDelete(schema.Events, key, events); err != nil {
		return err
	}
	if err := x.PutOrDelete(schema.Events, bodiesKey(key), kept); err != nil {
		return err
	}
	for _, bucket := range [][]byte{schema.Fresh, schema.Skipped} {
		if err := x.bits(bucket, key, begin); err != nil {
			return err
		}
	}
	return x.attemptsOf(&segment)
}

// bits removes the numbers in x.gone from a bitmap. first is the first number that remains in the
// segment after the erasure.
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

// attemptsOf removes the pending records of the segment's erased deliveries, and the attempts at
// them.
func (x *eventEraser) attemptsOf(segment *record.Segment) error {
	isGone := func(n uint64) bool { _, gone := x.gone[n]; return gone }
	for _, bucket := range [][]byte{schema.Pending, schema.Attempts, schema.LastAttempts} {
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
	c := x.tx.Bucket(schema.FirstAttempts).Cursor()
	for k, value := c.Seek(segment.Key); bytes.HasPrefix(k, segment.Key); k, value = c.Next() {
		old = append(old, bytes.Clone(k))
		pack, _ := record.DecodePack(bytes.Clone(value)) // an unreadable pack is dropped
		if kept := pack.Without(isGone); kept != nil {
			pack, _ = record.DecodePack(kept)
			packs = append(packs, row{firstAttemptsKey(segment.Last, binary.BigEndian.Uint64(pack.At(0))), kept})
		}
	}
	if err := x.DeleteAll(schema.FirstAttempts, old); err != nil {
		return err
	}
	for _, p := range packs {
		if err := x.Put(schema.FirstAttempts, p.key, p.value); err != nil {
			return err
		}
	}
	return nil
}
