package bolt

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// failedKey returns the key in bucketFailed of the row that has the webhook's delivery of
// that number, if it failed.
func failedKey(number uint64, webhook string) []byte {
	return runKey(number/record.MaxFailed*record.MaxFailed, webhook)
}

// noteFailed keeps the delivery of that number among those that failed, or not. Those that
// are skipped come there later, with the index of their run: publishing is not to write a
// row for each webhook that is off.
func (b *batch) noteFailed(webhook string, number uint64, failed bool) {
	b.MarkWritten()
	if b.failed == nil {
		b.failed = make(map[string]map[uint64]bool)
	}
	key := string(failedKey(number, webhook))
	if b.failed[key] == nil {
		b.failed[key] = make(map[uint64]bool)
	}
	b.failed[key][number] = failed
}

// writeFailed writes what has changed.
func (b *batch) writeFailed() error {
	for _, key := range slices.Sorted(maps.Keys(b.failed)) {
		row := []byte(key)
		old := b.Get(bucketFailed, row)
		m, err := record.DecodeFailed(binary.BigEndian.Uint64(row), old)
		if err != nil {
			m.Reset(m.First) // it cannot be read: those that fail from now on are found
		}
		for number, failed := range b.failed[key] {
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
		if err := b.PutOrDelete(bucketFailed, row, value); err != nil {
			return err
		}
	}
	b.failed = nil
	return nil
}

// noteSkipped keeps the skipped deliveries of a run among those that failed.
func (b *batch) noteSkipped(run uint64) {
	eachSkipped(b.tx, run, run+runSize, func(webhook []byte, number uint64) {
		b.noteFailed(string(webhook), number, true)
	})
}

// failed returns the numbers of the webhook's deliveries from low on and before high that
// may have failed, ascending.
func (w *walk) failed(high uint64) (low uint64, numbers []uint64, err error) {
	w.cost += costIndex
	low = (high - 1) / record.MaxFailed * record.MaxFailed
	row := failedKey(high-1, w.webhook)
	c := w.tx.Bucket(bucketFailed).Cursor()
	k, value := c.Seek(row)
	if !bytes.Equal(k, row) {
		value = nil
		k, _ = c.Prev()
		if len(k) < 8 {
			low = 0
		} else if before := binary.BigEndian.Uint64(k); before < low {
			low = before + record.MaxFailed // what is in between failed for no webhook
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

// eachSkipped calls visit with the skipped deliveries from a number on, and before another.
func eachSkipped(tx *bbolt.Tx, from, to uint64, visit func(webhook []byte, number uint64)) {
	found := newSegments(tx)
	c := tx.Bucket(bucketSkipped).Cursor()
	for k, value := c.Seek(record.NumberKey(from)); k != nil; k, value = c.Next() {
		m, err := record.DecodeBitmap(value)
		if err != nil {
			continue
		}
		if m.First >= to {
			break
		}
		segment, err := found.at(m.First)
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
