package eventlog

import (
	"encoding/binary"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// The buckets of pending deliveries. Rows move only from the first bucket to the second.
const (
	AsPublished = iota // schema.Fresh
	Attempted          // schema.Pending
)

// A Range is the numbers from Next to Last, inclusive.
type Range struct{ Next, Last uint64 }

// IsEmpty reports whether the range has no numbers.
func (r Range) IsEmpty() bool { return r.Next > r.Last }

// A PendingReader visits pending deliveries, including deliveries to deleted webhooks.
type PendingReader struct {
	View *View
	Now  time.Time

	// Full reports whether to stop before the next row; nil never stops.
	Full  func() bool
	Visit func(webhook []byte, d driver.PendingDelivery) // d.Webhook is not set

	steady time.Time // Now on the file's clock
}

// Read visits the deliveries of a bucket, AsPublished or Attempted, whose numbers are in the
// range. It returns the rest of the range, which it has not visited.
func (r *PendingReader) Read(bucket int, left Range) Range {
	r.steady = r.View.log.options.Clock.Steady(r.Now)
	name, row := schema.Fresh, r.fresh
	if bucket == Attempted {
		name, row = schema.Pending, r.pending
	}
	c := r.View.tx.Bucket(name).Cursor()
	for k, value := c.Seek(record.NumberKey(left.Next)); k != nil; k, value = c.Next() {
		if len(k) != 8 {
			continue
		}
		if r.Full != nil && r.Full() {
			return left
		}
		number := binary.BigEndian.Uint64(k) // in schema.Fresh: the segment's last number
		if number < left.Next {
			panic("the rows of a page are out of order") // otherwise reading might never end
		}
		if number > left.Last {
			break
		}
		row(number, value)
		left.Next = number + 1
	}
	left.Next = left.Last
	if left.Next++; left.Next == 0 {
		left = Range{1, 0}
	}
	return left
}

// fresh visits the deliveries of a segment that have been pending since publication, without an
// attempt. If the segment is unreadable, the recipients are unknown; these deliveries remain until
// they expire.
func (r *PendingReader) fresh(last uint64, value []byte) {
	m, err := record.DecodeBitmap(value)
	if err != nil {
		return
	}
	segment, err := r.View.segments.At(last) // seeking m.First could also read the previous leaf
	if err != nil {
		return
	}
	for i := range segment.Len() {
		event, err := segment.Event(i)
		due := event.PublishedAt
		if err != nil || due.After(r.Now) {
			due = r.Now // unreadable, as Load will report, or the clock was set back
		}
		for number, webhook := range segment.Recipients(i) {
			if m.Has(number) {
				r.Visit(webhook, driver.PendingDelivery{Number: number, Due: due})
			}
		}
	}
}

// pending visits a delivery that has its own record.
func (r *PendingReader) pending(number uint64, value []byte) {
	segment, err := r.View.segments.At(number)
	if err != nil {
		return
	}
	webhook, err := segment.Recipient(number)
	if err != nil {
		return
	}
	p := decodePending(value, r.Now, r.steady)
	r.Visit(webhook, Report(number, &p))
}

// Report returns the report of a delivery with its own record. The report's Webhook is not set.
func Report(number uint64, p *record.Pending) driver.PendingDelivery {
	return driver.PendingDelivery{
		Number: number, Due: p.Due, Attempts: p.Attempts, Before: p.Before, Recovered: p.Recovered, First: p.First,
	}
}

// decodePending decodes a record, and converts its due time to the system clock. now and steady are
// the current time on the system clock and on the file's clock. A delivery with an unreadable
// record is due now, because a late delivery is better than none.
func decodePending(value []byte, now, steady time.Time) record.Pending {
	p, err := record.DecodePending(value)
	if err != nil {
		return record.Pending{Due: now}
	}
	p.Due = now.Add(p.Due.Sub(steady))
	return p
}

// nothingPending is the result of firstPending if no delivery is pending.
const nothingPending = ^uint64(0)

// firstPending returns a number before which no delivery is pending. A purge must keep all segments
// from that number on.
func firstPending(tx *bbolt.Tx) uint64 {
	first := nothingPending
	for _, bucket := range [][]byte{schema.Fresh, schema.Pending} {
		if key, _ := tx.Bucket(bucket).Cursor().First(); len(key) == 8 {
			first = min(first, binary.BigEndian.Uint64(key))
		}
	}
	return first
}

// NothingPending reports whether the log has no pending deliveries.
func (s *Step) NothingPending() bool {
	return s.writer.segment.IsEmpty() && firstPending(s.tx) == nothingPending
}
