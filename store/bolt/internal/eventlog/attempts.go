package eventlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// logAttempt stores an attempt at a delivery. If the delivery then has more than MaxAttempts, it
// deletes the oldest ones.
func (s *Step) logAttempt(number uint64, a *driver.Attempt, outcome driver.Effect) error {
	if a.Number > driver.MaxAttempts {
		var old [][]byte
		c := s.tx.Bucket(schema.Attempts).Cursor()
		last := attemptKey(number, a.Number-driver.MaxAttempts)
		for k, _ := c.Seek(attemptKey(number, 0)); k != nil && bytes.Compare(k, last) <= 0; k, _ = c.Next() {
			old = append(old, bytes.Clone(k))
		}
		if err := s.DeleteAll(schema.Attempts, old); err != nil {
			return err
		}
	}
	s.appendAttempt(number, a.Number, record.EncodeAttempt(a, outcome))
	return nil
}

// A row is a key and a value.
type row struct{ key, value []byte }

// appendAttempt adds the record of an attempt in memory; Flush writes it.
func (s *Step) appendAttempt(number uint64, attempt int, record []byte) {
	s.MarkWritten()
	s.late = append(s.late, row{attemptKey(number, attempt), record})
}

// maxLastAttempts is the approximate maximum size of schema.LastAttempts in bytes. bbolt keeps
// such a small bucket inside the page of the root bucket, which each commit writes anyway.
const maxLastAttempts = 600

// writeAttempts writes the attempts that are not packed. A few attempts go to schema.LastAttempts
// instead of schema.Attempts, so that a single settlement writes 12.9 KB instead of 19.1 KB.
func (s *Step) writeAttempts() error {
	if len(s.late) == 0 {
		return nil
	}
	const rowBytes = 16 // overhead of bbolt for each row
	var rows []row
	size := 0
	c := s.tx.Bucket(schema.LastAttempts).Cursor()
	var last [][]byte
	for k, value := c.First(); k != nil; k, value = c.Next() {
		last = append(last, bytes.Clone(k))
		rows = append(rows, row{last[len(last)-1], bytes.Clone(value)})
	}
	late := s.late
	s.late, rows = nil, append(rows, late...)
	for _, r := range rows {
		size += rowBytes + len(r.key) + len(r.value)
	}
	if size <= maxLastAttempts {
		for _, r := range late {
			if err := s.Put(schema.LastAttempts, r.key, r.value); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.DeleteAll(schema.LastAttempts, last); err != nil {
		return err
	}
	slices.SortStableFunc(rows, func(a, b row) int { return bytes.Compare(a.key, b.key) })
	for _, r := range rows {
		if err := s.Append(schema.Attempts, r.key, r.value); err != nil {
			return err
		}
	}
	return nil
}

func attemptKey(number uint64, attempt int) []byte {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, 12), number)
	return binary.BigEndian.AppendUint32(key, uint32(attempt))
}

// A firstAttempt is the record of the first attempt at the delivery with that number.
type firstAttempt struct {
	number uint64
	record []byte
}

// minPacked is the minimum number of first attempts in a pack. It limits the number of packs that a
// lookup in a segment must read.
const minPacked = 4

// writeFirstAttempts writes the batch's first attempts at deliveries of a segment as one record,
// whose key is the smallest number in it. If there are fewer than minPacked, it stores them like
// other attempts.
func (s *Step) writeFirstAttempts(row *bitmap) error {
	if len(row.attempts) < minPacked {
		for _, a := range row.attempts {
			s.appendAttempt(a.number, 1, a.record)
		}
		return nil
	}
	slices.SortFunc(row.attempts, func(a, b firstAttempt) int { return cmp.Compare(a.number, b.number) })
	for _, a := range row.attempts {
		s.writer.attempts.AppendNumbered(a.number, a.record)
	}
	return s.Append(schema.FirstAttempts, firstAttemptsKey(row.last, row.attempts[0].number), s.writer.attempts.Record())
}

func firstAttemptsKey(last, least uint64) []byte {
	return binary.BigEndian.AppendUint64(record.NumberKey(last), least)
}

// packedAttempt returns the record of the first attempt at a delivery of the segment, or nil if
// that attempt is not packed.
func packedAttempt(tx *bbolt.Tx, segment *record.Segment, number uint64) []byte {
	c := tx.Bucket(schema.FirstAttempts).Cursor()
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

// attemptsAt returns the stored attempts at a delivery of the segment, and the state of the
// delivery after them.
func attemptsAt(tx *bbolt.Tx, segment *record.Segment, number uint64) (attempts []driver.Attempt, state driver.DeliveryState, err error) {
	var outcomes []driver.Effect
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
	for _, bucket := range [][]byte{schema.Attempts, schema.LastAttempts} {
		c := tx.Bucket(bucket).Cursor()
		for k, value := c.Seek(record.NumberKey(number)); bytes.HasPrefix(k, record.NumberKey(number)); k, value = c.Next() {
			if err := read(value); err != nil {
				return nil, "", err
			}
		}
	}
	for len(attempts) > 0 && attempts[0].Number <= attempts[len(attempts)-1].Number-driver.MaxAttempts {
		attempts, outcomes = attempts[1:], outcomes[1:] // more than MaxAttempts: drop the packed first attempt
	}
	for _, outcome := range outcomes {
		switch outcome {
		case driver.Deliver:
			state = driver.Delivered
		case driver.GiveUp:
			state = driver.Dead
		}
	}
	return attempts, state, nil
}
