package bolt

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
	"time"

	"go.etcd.io/bbolt"

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
	return b.Append(bucketAttempts, attemptKey(number, a.Number), encodeAttempt(a, outcome))
}

func attemptKey(number uint64, attempt int) []byte {
	key := binary.BigEndian.AppendUint64(make([]byte, 0, 12), number)
	return binary.BigEndian.AppendUint32(key, uint32(attempt))
}

// minPacked is how many first attempts at deliveries of a segment make a pack at least,
// so that never many packs of a segment have to be looked through.
const minPacked = 4

// writeLog writes what was logged of a segment in the batch: in one record, under the
// least number in it, or if that is not much as other attempts are.
func (b *batch) writeLog(row *mark) error {
	if len(row.log) < minPacked {
		for _, l := range row.log {
			if err := b.Append(bucketAttempts, attemptKey(l.number, 1), l.record); err != nil {
				return err
			}
		}
		return nil
	}
	slices.SortFunc(row.log, func(a, b logged) int { return cmp.Compare(a.number, b.number) })
	p := &b.draft.log
	for _, l := range row.log {
		e := p.next()
		*e = binary.BigEndian.AppendUint64(*e, l.number)
		e.raw(l.record)
		p.end()
	}
	return b.Append(bucketFirstAttempts, firstAttemptsKey(row.last, row.log[0].number), p.record())
}

func firstAttemptsKey(last, least uint64) []byte {
	return binary.BigEndian.AppendUint64(seqKey(last), least)
}

// firstAttempt returns the record of the first attempt at a delivery of the segment, if
// it was packed.
func firstAttempt(tx *bbolt.Tx, segment *segment, number uint64) []byte {
	c := tx.Bucket(bucketFirstAttempts).Cursor()
	for k, record := c.Seek(segment.key); bytes.HasPrefix(k, segment.key); k, record = c.Next() {
		if len(k) != 16 || binary.BigEndian.Uint64(k[8:]) > number {
			break
		}
		p, err := decodePack(record)
		if err != nil {
			continue
		}
		i := sort.Search(p.len(), func(i int) bool { return bytes.Compare(p.at(i), seqKey(number)) >= 0 })
		if record, found := bytes.CutPrefix(p.at(i), seqKey(number)); found {
			return record
		}
	}
	return nil
}

// attemptsAt returns the attempts at a delivery of the segment that are kept, and the
// state that they left it in.
func attemptsAt(tx *bbolt.Tx, segment *segment, number uint64) (attempts []webhooks.Attempt, state webhooks.DeliveryState, err error) {
	var outcomes []webhooks.Outcome
	read := func(record []byte) error {
		attempt, outcome, err := decodeAttempt(record)
		attempts, outcomes = append(attempts, attempt), append(outcomes, outcome)
		return err
	}
	if record := firstAttempt(tx, segment, number); record != nil {
		if err := read(record); err != nil {
			return nil, "", err
		}
	}
	c := tx.Bucket(bucketAttempts).Cursor()
	for k, record := c.Seek(seqKey(number)); bytes.HasPrefix(k, seqKey(number)); k, record = c.Next() {
		if err := read(record); err != nil {
			return nil, "", err
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

// An attempt record holds what became of the delivery with it.
func encodeAttempt(a *webhooks.Attempt, outcome webhooks.Outcome) []byte {
	e := newEncoder(48 + len(a.Error) + len(a.Response))
	e.byte(byte(outcome))
	e.uint(uint64(a.Number))
	e.time(a.StartedAt)
	e.int(int64(a.Duration / time.Microsecond))
	e.uint(uint64(a.Status))
	e.string(string(a.Class))
	e.string(a.Error)
	e.string(a.Response)
	return e
}

func decodeAttempt(record []byte) (webhooks.Attempt, webhooks.Outcome, error) {
	var a webhooks.Attempt
	d := newDecoder(record)
	outcome := webhooks.Outcome(d.byte())
	a.Number = int(d.uint())
	a.StartedAt = d.time()
	a.Duration = time.Duration(d.int()) * time.Microsecond
	a.Status = int(d.uint())
	a.Class = webhooks.ErrorClass(d.string())
	a.Error = d.string()
	a.Response = d.string()
	return a, outcome, d.err()
}
