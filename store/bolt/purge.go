package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
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
	purge = purge.Doubting(s.clock.Doubt())
	sweeping, err := s.sweep(ctx, purge.Limit, func(b *batch, removed int) error {
		if more = removed >= purge.Limit; more {
			return nil
		}
		rest := purge
		rest.Limit -= removed
		var err error
		more, err = s.purge(b, &rest)
		return err
	})
	return more || sweeping, err
}

// purge takes a step.
func (s *Store) purge(b *batch, purge *webhooks.Purge) (more bool, err error) {
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
		func() error { return s.expire(b, payloads, &left) },
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
		func() error { return s.dropIDs(b, &left) },
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
	deleted bool // the webhook
}

// expire ends the pending deliveries of events before that number, whether or not attempts at
// them are under way: see [webhooks.Purge]. Those of deleted webhooks end without a trace.
func (s *Store) expire(b *batch, before uint64, left *int) error {
	found := newSegments(b.tx)
	var old []expiring
	look := func(number uint64, attempt int) (more bool) {
		if number >= before || len(old) >= *left {
			return false
		}
		var webhook []byte
		if segment, err := found.at(number); err == nil {
			webhook, _ = segment.Recipient(number)
		}
		deleted := webhook != nil && b.Get(bucketWebhookIDs, webhook) == nil
		old = append(old, expiring{number, string(webhook), attempt, deleted})
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
	ended := make([]webhooks.DeliveryRef, 0, len(old))
	for _, d := range old {
		ended = append(ended, webhooks.DeliveryRef{WebhookID: d.webhook, Number: d.number})
		if err := b.removePending(d.number); err != nil {
			return err
		}
		if *left--; d.deleted {
			continue
		}
		attempt := webhooks.ExpiredAttempt(d.attempt, time.Now())
		if err := b.logAttempt(d.number, &attempt, webhooks.GiveUp); err != nil {
			return err
		}
		if d.webhook != "" {
			b.noteFailed(d.webhook, d.number, true)
		}
	}
	b.AfterCommit(func() { s.feed.ended(ended) })
	return b.DeleteAll(bucketFresh, damaged)
}

// nothingPending is what firstPending returns if nothing is pending.
const nothingPending = math.MaxUint64

// firstPending returns a number before which no delivery is pending: the segments from
// there on are needed.
func firstPending(b *batch) uint64 {
	first := uint64(nothingPending)
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
