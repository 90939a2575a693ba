package bolt

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// logAttempt stores an attempt at a delivery, and forgets those that are too many by
// now.
func (b *batch) logAttempt(number uint64, a *webhooks.Attempt, outcome webhooks.Outcome) error {
	if a.Number > webhooks.MaxAttempts {
		var old [][]byte
		c := b.tx.Bucket(bucketAttempts).Cursor()
		last := attemptKey(number, a.Number-webhooks.MaxAttempts)
		for k, _ := c.Seek(attemptKey(number, 0)); k != nil && bytes.Compare(k, last) <= 0; k, _ = c.Next() {
			old = append(old, bytes.Clone(k))
		}
		if err := b.DeleteAll(bucketAttempts, old); err != nil {
			return err
		}
	}
	b.appendAttempt(number, a.Number, record.EncodeAttempt(a, outcome))
	return nil
}

// A row is a key and a value.
type row struct{ key, value []byte }

// appendAttempt stores the record of an attempt, when the batch is flushed.
func (b *batch) appendAttempt(number uint64, attempt int, record []byte) {
	b.MarkWritten()
	b.late = append(b.late, row{attemptKey(number, attempt), record})
}

// maxLastAttempts is how many bytes the rows of bucketLastAttempts have at most, about. bbolt keeps
// so small a bucket in the page that has the root of all buckets, which each commit writes.
const maxLastAttempts = 600

// writeAttempts writes the attempts that are not packed: as long as they are few, without
// touching the pages of bucketAttempts.
func (b *batch) writeAttempts() error {
	if len(b.late) == 0 {
		return nil
	}
	const rowBytes = 16 // of bbolt's, in addition to key and value
	var rows []row
	size := 0
	c := b.tx.Bucket(bucketLastAttempts).Cursor()
	var last [][]byte
	for k, value := c.First(); k != nil; k, value = c.Next() {
		last = append(last, bytes.Clone(k))
		rows = append(rows, row{last[len(last)-1], bytes.Clone(value)})
	}
	late := b.late
	b.late, rows = nil, append(rows, late...)
	for _, r := range rows {
		size += rowBytes + len(r.key) + len(r.value)
	}
	if size <= maxLastAttempts {
		for _, r := range late {
			if err := b.Put(bucketLastAttempts, r.key, r.value); err != nil {
				return err
			}
		}
		return nil
	}
	if err := b.DeleteAll(bucketLastAttempts, last); err != nil {
		return err
	}
	slices.SortStableFunc(rows, func(a, b row) int { return bytes.Compare(a.key, b.key) })
	for _, r := range rows {
		if err := b.Append(bucketAttempts, r.key, r.value); err != nil {
			return err
		}
	}
	return nil
}

func attemptKey(number uint64, attempt int) []byte {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, 12), number)
	return binary.BigEndian.AppendUint32(key, uint32(attempt))
}

// A firstAttempt is the record of an attempt at the delivery of that number.
type firstAttempt struct {
	number uint64
	record []byte
}

// minPacked is how many first attempts at deliveries of a segment make a pack at least,
// so that never many packs of a segment have to be looked through.
const minPacked = 4

// writeFirstAttempts writes those at deliveries of a segment that the batch has: in one
// record, under the least number in it, or if they are few as other attempts are.
func (b *batch) writeFirstAttempts(row *bitmap) error {
	if len(row.attempts) < minPacked {
		for _, a := range row.attempts {
			b.appendAttempt(a.number, 1, a.record)
		}
		return nil
	}
	slices.SortFunc(row.attempts, func(a, b firstAttempt) int { return cmp.Compare(a.number, b.number) })
	for _, a := range row.attempts {
		b.attempts.AppendNumbered(a.number, a.record)
	}
	return b.Append(bucketFirstAttempts, firstAttemptsKey(row.last, row.attempts[0].number), b.attempts.Record())
}

func firstAttemptsKey(last, least uint64) []byte {
	return binary.BigEndian.AppendUint64(record.NumberKey(last), least)
}

// packedAttempt returns the record of the first attempt at a delivery of the segment, if
// it was packed.
func packedAttempt(tx *bbolt.Tx, segment *record.Segment, number uint64) []byte {
	c := tx.Bucket(bucketFirstAttempts).Cursor()
	for k, value := c.Seek(segment.Key); bytes.HasPrefix(k, segment.Key); k, value = c.Next() {
		if len(k) != 16 || binary.BigEndian.Uint64(k[8:]) > number {
			break
		}
		if pack, err := record.DecodePack(value); err == nil {
			if found := pack.ByNumber(number); found != nil {
				return found
			}
		}
	}
	return nil
}

// attemptsAt returns the attempts at a delivery of the segment that are kept, and the
// state that they left it in.
func attemptsAt(tx *bbolt.Tx, segment *record.Segment, number uint64) (attempts []webhooks.Attempt, state webhooks.DeliveryState, err error) {
	var outcomes []webhooks.Outcome
	read := func(value []byte) error {
		attempt, outcome, err := record.DecodeAttempt(value)
		attempts, outcomes = append(attempts, attempt), append(outcomes, outcome)
		return err
	}
	if value := packedAttempt(tx, segment, number); value != nil {
		if err := read(value); err != nil {
			return nil, "", err
		}
	}
	for _, bucket := range [][]byte{bucketAttempts, bucketLastAttempts} {
		c := tx.Bucket(bucket).Cursor()
		for k, value := c.Seek(record.NumberKey(number)); bytes.HasPrefix(k, record.NumberKey(number)); k, value = c.Next() {
			if err := read(value); err != nil {
				return nil, "", err
			}
		}
	}
	for len(attempts) > 0 && attempts[0].Number <= attempts[len(attempts)-1].Number-webhooks.MaxAttempts {
		attempts, outcomes = attempts[1:], outcomes[1:] // the first one, in a pack
	}
	for _, outcome := range outcomes {
		switch outcome {
		case webhooks.Deliver:
			state = webhooks.Delivered
		case webhooks.GiveUp:
			state = webhooks.Dead
		}
	}
	return attempts, state, nil
}
