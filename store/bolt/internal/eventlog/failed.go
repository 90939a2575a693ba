package eventlog

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// FailedKey returns the key of the row in schema.Failed that lists a webhook's failed delivery.
func FailedKey(number uint64, webhook string) []byte {
	return runKey(number/record.MaxFailed*record.MaxFailed, webhook)
}

// noteFailed adds a delivery to the index of failed deliveries, or removes it. The index gets
// skipped deliveries later, when their run is indexed, so that publishing does not write a row for
// each inactive webhook.
func (s *Step) noteFailed(webhook string, number uint64, failed bool) {
	s.MarkWritten()
	if s.failed == nil {
		s.failed = make(map[string]map[uint64]bool)
	}
	key := string(FailedKey(number, webhook))
	if s.failed[key] == nil {
		s.failed[key] = make(map[uint64]bool)
	}
	s.failed[key][number] = failed
}

// writeFailed writes the changed rows of schema.Failed.
func (s *Step) writeFailed() error {
	for _, key := range slices.Sorted(maps.Keys(s.failed)) {
		row := []byte(key)
		old := s.Get(schema.Failed, row)
		m, err := record.DecodeFailed(binary.BigEndian.Uint64(row), old)
		if err != nil {
			m.Reset(m.First) // an unreadable row restarts with the new failures
		}
		for number, failed := range s.failed[key] {
			if failed {
				m.Set(number)
			} else if m.Has(number) {
				m.Clear(number)
			}
		}
		var value []byte
		if !m.IsEmpty() {
			value = record.EncodeFailed(&m)
		}
		if bytes.Equal(value, old) {
			continue
		}
		if err := s.PutOrDelete(schema.Failed, row, value); err != nil {
			return err
		}
	}
	s.failed = nil
	return nil
}

// noteSkipped adds the skipped deliveries of a run to the index of failed deliveries.
func (s *Step) noteSkipped(run uint64) {
	eachSkipped(s.tx, run, run+RunSize, func(webhook []byte, number uint64) {
		s.noteFailed(string(webhook), number, true)
	})
}

// failed returns the numbers of the webhook's deliveries that may have failed, in ascending order.
// It covers the range of one row, [low, high).
func (w *walk) failed(high uint64) (low uint64, numbers []uint64, err error) {
	w.cost += costIndex
	low = (high - 1) / record.MaxFailed * record.MaxFailed
	row := FailedKey(high-1, w.webhook)
	c := w.tx.Bucket(schema.Failed).Cursor()
	k, value := c.Seek(row)
	if !bytes.Equal(k, row) {
		value = nil
		k, _ = c.Prev()
		if len(k) < 8 {
			low = 0
		} else if before := binary.BigEndian.Uint64(k); before < low {
			low = before + record.MaxFailed // no delivery between the two rows failed
		}
	}
	m, err := record.DecodeFailed(low, value)
	if err != nil {
		return 0, nil, err
	}
	m.Each(func(n uint64) bool {
		numbers = append(numbers, n)
		return true
	})
	if from := max(low, w.indexed); from < high {
		looked := 0
		eachSkipped(w.tx, from, high, func(webhook []byte, number uint64) {
			if looked++; string(webhook) == w.webhook {
				numbers = append(numbers, number)
			}
		})
		w.cost += looked * costRecord
		slices.Sort(numbers)
		numbers = slices.Compact(numbers)
	}
	return low, numbers, nil
}

// eachSkipped calls visit with the skipped deliveries whose numbers are in [from, to).
func eachSkipped(tx *bbolt.Tx, from, to uint64, visit func(webhook []byte, number uint64)) {
	found := NewSegments(tx)
	c := tx.Bucket(schema.Skipped).Cursor()
	for k, value := c.Seek(record.NumberKey(from)); k != nil; k, value = c.Next() {
		m, err := record.DecodeBitmap(value)
		if err != nil {
			continue
		}
		if m.First >= to {
			break
		}
		segment, err := found.At(m.First)
		if err != nil {
			continue
		}
		for i := range segment.Len() {
			for number, webhook := range segment.Recipients(i) {
				if number >= from && number < to && m.Has(number) {
					visit(webhook, number)
				}
			}
		}
	}
}
