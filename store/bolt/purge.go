package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"math"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// Now implements [webhooks.Store].
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	tx, err := s.view(ctx) // says whether the store is closed
	if err != nil {
		return time.Time{}, err
	}
	return s.clock.Time(), tx.Rollback()
}

// Purge implements [webhooks.Store]. It indexes complete runs, too, removes the rows
// of webhooks that were deleted, marks the clock, and keeps the list of free pages and the bucket of all
// buckets short.
func (s *Store) Purge(ctx context.Context, purge webhooks.Purge) (more bool, err error) {
	if more, err = s.purgeStep(ctx, purge); err != nil {
		return more, err
	}
	shortened := s.shorten(ctx, more)
	if !more && !shortened {
		s.mergeRoot(ctx)
	}
	return more || shortened, nil
}

func (s *Store) purgeStep(ctx context.Context, purge webhooks.Purge) (more bool, err error) {
	left := s.leftovers.next("", purge.Limit)
	purge = purge.Doubting(s.clock.Doubt())
	reserved := make(map[uint64]uint64)
	err = s.writer.Run(ctx, func(b *batch) error {
		removed, err := s.removeRows(b, left)
		if more = removed >= purge.Limit; more || err != nil {
			return err
		}
		rest := purge
		rest.Limit -= removed
		more, err = s.purge(b, &rest, reserved)
		return err
	})
	for _, token := range reserved {
		s.queue.Release(token) // if it has not ended
	}
	return more, err
}

// purge takes a step. It reserves the deliveries that it ends, so that they are not
// claimed, and notes the tokens in reserved, by number: it may run more than once.
func (s *Store) purge(b *batch, purge *webhooks.Purge, reserved map[uint64]uint64) (more bool, err error) {
	b.maintaining = true
	if err := b.Flush(); err != nil {
		return false, err
	}
	for _, index := range []func(*batch) (bool, error){indexRun, indexEvents} {
		if indexed, err := index(b); indexed || err != nil {
			return true, err
		}
	}
	payloads, attempts, ids := s.firstKept(b.tx, purge.Payloads), s.firstKept(b.tx, purge.Attempts), s.firstKept(b.tx, purge.EventIDs)
	if segment, err := newSegments(b.tx).at(attempts); err == nil {
		attempts = segment.First // first attempts are in packs, each of which is of a segment
	}
	b.AfterCommit(func() { s.published.forget(payloads) })
	if err := s.mark(b, markIdle); err != nil {
		return false, err
	}
	left := purge.Limit
	for _, step := range []func() error{
		func() error { return s.expire(b, payloads, &left, reserved) },
		b.writeAttempts, // those of what has expired
		func() error { return purgeBodies(b, payloads, &left) },
		// The first attempt at a delivery goes first: its state is that of the last one that is there.
		func() error { return deleteBefore(b, bucketFirstAttempts, attempts, &left) },
		func() error { return deleteBefore(b, bucketAttempts, attempts, &left) },
		func() error { return deleteBefore(b, bucketLastAttempts, attempts, &left) },
		func() error { return deleteBefore(b, bucketSkipped, attempts, &left) },
		func() error { return deleteBefore(b, bucketRuns, max(attempts, runSize)-runSize, &left) },
		func() error {
			return deleteBefore(b, bucketFailed, max(attempts, record.MaxFailed)-record.MaxFailed, &left)
		},
		func() error { return purgeEventIDs(b, ids) },
		func() error {
			return deleteBefore(b, bucketEvents, min(attempts, metaNumber(b.tx, keyIDsGone), firstPending(b)), &left)
		},
		func() error {
			first, _ := bounds(b.tx)
			return deleteBefore(b, bucketEventRuns, max(first, runSize)-runSize, &left)
		},
		func() error { return s.sweepIDs(b, &left) },
		func() error { return purgeRecoveries(b, purge.Attempts, &left) },
		func() error {
			return deleteBefore(b, bucketDedupKeys, uint64(max(purge.DedupKeys.UnixMilli(), 0)), &left)
		},
		func() error { return s.purgeNotices(b, purge.Notices, &left) },
	} {
		if err := step(); err != nil {
			return false, err
		}
		if left <= 0 {
			return true, nil
		}
	}
	return false, nil
}

// An expiring is a delivery that is pending for too long.
type expiring struct {
	number  uint64
	webhook string // empty if it is unknown
	attempt int
}

// expire ends the pending deliveries of events before that number, except those leased.
func (s *Store) expire(b *batch, before uint64, left *int, reserved map[uint64]uint64) error {
	found := newSegments(b.tx)
	var old []expiring
	var leased map[uint64]bool
	look := func(number uint64, attempt int) (more bool) {
		if number >= before || len(old) >= *left {
			return false
		}
		var webhook []byte
		if segment, err := found.at(number); err == nil {
			webhook, _ = segment.Recipient(number)
		}
		if webhook != nil && b.Get(bucketWebhookIDs, webhook) == nil {
			return true // left over, see [leftovers]
		}
		if leased == nil {
			leased = s.queue.Leases()
		}
		if _, ours := reserved[number]; ours || !leased[number] {
			old = append(old, expiring{number, string(webhook), attempt})
		}
		return true
	}
	var damaged [][]byte
	c := b.tx.Bucket(bucketFresh).Cursor()
	for k, value := c.First(); k != nil && binary.BigEndian.Uint64(k) < before; k, value = c.Next() {
		m, err := record.DecodeBitmap(value)
		if err != nil {
			damaged = append(damaged, bytes.Clone(k))
		}
		if !m.Each(func(n uint64) bool { return look(n, 1) }) {
			break
		}
	}
	c = b.tx.Bucket(bucketPending).Cursor()
	for k, value := c.First(); k != nil; k, value = c.Next() {
		p, _ := record.DecodePending(value)
		if len(k) == 8 && !look(binary.BigEndian.Uint64(k), p.Attempts+1) {
			break
		}
	}
	s.reserve(old, reserved)
	for _, d := range old {
		token, ours := reserved[d.number]
		if !ours {
			continue // leased just now
		}
		attempt := webhooks.ExpiredAttempt(d.attempt, time.Now())
		if err := b.logAttempt(d.number, &attempt, webhooks.GiveUp); err != nil {
			return err
		}
		if err := b.removePending(d.number); err != nil {
			return err
		}
		if d.webhook != "" {
			b.noteFailed(d.webhook, d.number, true)
		}
		b.AfterCommit(func() {
			if s.queue.Done(token); token == 0 { // a step before this one made it pending
				s.queue.Remove(d.webhook, d.number)
			}
		})
		*left--
	}
	return b.DeleteAll(bucketFresh, damaged)
}

// reserve keeps what expires from being claimed, unless it is reserved already.
func (s *Store) reserve(old []expiring, reserved map[uint64]uint64) {
	numbers := make(map[string][]uint64) // by webhook
	for _, d := range old {
		if _, ours := reserved[d.number]; !ours {
			numbers[d.webhook] = append(numbers[d.webhook], d.number)
		}
	}
	for webhook, numbers := range numbers {
		maps.Copy(reserved, s.queue.Reserve(webhook, numbers))
	}
}

// firstPending returns a number before which no delivery is pending: the segments from
// there on are needed.
func firstPending(b *batch) uint64 {
	first := uint64(math.MaxUint64)
	for _, bucket := range [][]byte{bucketFresh, bucketPending} {
		if key, _ := b.tx.Bucket(bucket).Cursor().First(); len(key) == 8 {
			first = min(first, binary.BigEndian.Uint64(key))
		}
	}
	return first
}

// deleteBefore deletes the records whose keys begin with a number before that one.
func deleteBefore(b *batch, bucket []byte, before uint64, left *int) error {
	var old [][]byte // not deleted at once: a cursor skips keys after that
	c := b.tx.Bucket(bucket).Cursor()
	for k, _ := c.First(); k != nil && *left > 0; k, _ = c.Next() {
		if len(k) >= 8 && binary.BigEndian.Uint64(k) >= before {
			break
		}
		old = append(old, bytes.Clone(k))
		*left--
	}
	return b.DeleteAll(bucket, old)
}

// purgeBodies deletes the bodies of segments before that number. What stays of a leaf that
// they stood in is written again, and counts, too.
func purgeBodies(b *batch, before uint64, left *int) error {
	begin := metaNumber(b.tx, keyBodiesGone)
	next, kept := begin, 0
	var old [][]byte // not deleted at once: a cursor skips keys after that
	c := b.tx.Bucket(bucketEvents).Cursor()
	for k, value := c.Seek(record.NumberKey(begin)); k != nil && *left > 0; k, value = c.Next() {
		last := binary.BigEndian.Uint64(k)
		if last >= before {
			break
		}
		if len(k) == 8 || isDivider(k, value) {
			kept += len(value)
			continue
		}
		old = append(old, bytes.Clone(k))
		next = last + 1
		*left -= 1 + kept/writtenAtOnce
		kept %= writtenAtOnce
	}
	if err := b.DeleteAll(bucketEvents, old); err != nil {
		return err
	}
	return b.putNumber(keyBodiesGone, begin, next)
}

// writtenAtOnce is how many bytes take about as long to write as a record to delete.
const writtenAtOnce = 16 << 10

// purgeEventIDs forgets the ids of events before that number.
func purgeEventIDs(b *batch, before uint64) error {
	gone := metaNumber(b.tx, keyIDsGone)
	return b.putNumber(keyIDsGone, gone, max(gone, before))
}

// putNumber stores a number in bucketMeta, unless it is the one from before.
func (b *batch) putNumber(key []byte, before, number uint64) error {
	if number == before {
		return nil
	}
	return b.Put(bucketMeta, key, record.NumberKey(number))
}
