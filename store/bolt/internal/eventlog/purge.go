package eventlog

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// Purge removes up to *left expired rows, and subtracts their number from *left. It returns the
// deliveries that it ended. If *left is 0 or less afterwards, more expired rows may remain. The
// batch must be flushed before the call.
func (s *Step) Purge(purge *driver.Purge, left *int) (ended []driver.DeliveryRef, err error) {
	payloads, attempts, ids := s.log.firstKept(s.tx, purge.Payloads), s.log.firstKept(s.tx, purge.Attempts), s.log.firstKept(s.tx, purge.EventIDs)
	if segment, err := NewSegments(s.tx).At(attempts); err == nil {
		attempts = segment.First // a pack of first attempts belongs to a whole segment
	}
	for _, step := range []func() error{
		func() error { ended, err = s.expire(payloads, left); return err },
		s.writeAttempts, // writes the attempts that expire has added
		func() error { return s.purgeBodies(payloads, left) },
		// Delete first attempts first: the last attempt determines the delivery's state, and must
		// be deleted last.
		func() error { return s.DeleteBefore(schema.FirstAttempts, attempts, left) },
		func() error { return s.DeleteBefore(schema.Attempts, attempts, left) },
		func() error { return s.DeleteBefore(schema.LastAttempts, attempts, left) },
		func() error { return s.DeleteBefore(schema.Skipped, attempts, left) },
		func() error { return s.DeleteBefore(schema.Runs, max(attempts, RunSize)-RunSize, left) },
		func() error {
			return s.DeleteBefore(schema.Failed, max(attempts, record.MaxFailed)-record.MaxFailed, left)
		},
		func() error { return s.purgeIDs(ids) },
		func() error {
			return s.DeleteBefore(schema.Events, min(attempts, Number(s.tx, schema.MetaIDsGone), firstPending(s.tx)), left)
		},
		func() error {
			first, _ := bounds(s.tx)
			return s.DeleteBefore(schema.EventRuns, max(first, RunSize)-RunSize, left)
		},
		func() error { return s.dropIDs(left) },
	} {
		if err := step(); err != nil || *left <= 0 {
			return ended, err
		}
	}
	return ended, nil
}

// An expiring is a delivery that has been pending for longer than allowed.
type expiring struct {
	number  uint64
	webhook string // empty if unknown
	attempt int
	deleted bool // whether the webhook was deleted
}

// expire ends the pending deliveries of events with numbers below the given number, even if an
// attempt is in progress: see [driver.Purge]. A delivery to a deleted webhook ends without
// recording an attempt.
func (s *Step) expire(before uint64, left *int) (ended []driver.DeliveryRef, err error) {
	found := NewSegments(s.tx)
	var old []expiring
	look := func(number uint64, attempt int) (more bool) {
		if number >= before || len(old) >= *left {
			return false
		}
		var webhook []byte
		if segment, err := found.At(number); err == nil {
			webhook, _ = segment.Recipient(number)
		}
		deleted := webhook != nil && !s.log.hasWebhook(s.tx, webhook)
		old = append(old, expiring{number, string(webhook), attempt, deleted})
		return true
	}
	var damaged [][]byte
	c := s.tx.Bucket(schema.Fresh).Cursor()
	for k, value := c.First(); k != nil && binary.BigEndian.Uint64(k) < before; k, value = c.Next() {
		m, err := record.DecodeBitmap(value)
		if err != nil {
			damaged = append(damaged, bytes.Clone(k))
		}
		if !m.Each(func(n uint64) bool { return look(n, 1) }) {
			break
		}
	}
	c = s.tx.Bucket(schema.Pending).Cursor()
	for k, value := c.First(); k != nil; k, value = c.Next() {
		p, _ := record.DecodePending(value)
		if len(k) == 8 && !look(binary.BigEndian.Uint64(k), p.Attempts+1) {
			break
		}
	}
	ended = make([]driver.DeliveryRef, 0, len(old))
	for _, d := range old {
		ended = append(ended, driver.DeliveryRef{WebhookID: d.webhook, Number: d.number})
		if err := s.RemovePending(d.number); err != nil {
			return nil, err
		}
		if *left--; d.deleted {
			continue
		}
		attempt := driver.ExpiredAttempt(d.attempt, time.Now())
		if err := s.logAttempt(d.number, &attempt, driver.GiveUp); err != nil {
			return nil, err
		}
		if d.webhook != "" {
			s.noteFailed(d.webhook, d.number, true)
		}
	}
	return ended, s.DeleteAll(schema.Fresh, damaged)
}

// purgeBodies deletes the bodies of segments below the given number. bbolt must rewrite the rows
// that remain in the same leaves, and this also counts toward left.
func (s *Step) purgeBodies(before uint64, left *int) error {
	begin := Number(s.tx, schema.MetaBodiesGone)
	next, kept := begin, 0
	var old [][]byte // deleted after the loop: a cursor skips keys after a deletion
	c := s.tx.Bucket(schema.Events).Cursor()
	for k, value := c.Seek(record.NumberKey(begin)); k != nil && *left > 0; k, value = c.Next() {
		last := binary.BigEndian.Uint64(k)
		if last >= before {
			break
		}
		if len(k) == 8 || IsDivider(k, value) {
			kept += len(value)
			continue
		}
		old = append(old, bytes.Clone(k))
		next = last + 1
		*left -= 1 + kept/writtenAtOnce
		kept %= writtenAtOnce
	}
	if err := s.DeleteAll(schema.Events, old); err != nil {
		return err
	}
	return s.putNumber(schema.MetaBodiesGone, begin, next)
}

// writtenAtOnce is the number of bytes whose writing takes as long as deleting one record.
const writtenAtOnce = 16 << 10

// purgeIDs marks as purged the IDs of all events with numbers below the given number.
func (s *Step) purgeIDs(before uint64) error {
	gone := Number(s.tx, schema.MetaIDsGone)
	return s.putNumber(schema.MetaIDsGone, gone, max(gone, before))
}
