package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// Purge implements [webhooks.Store]. It indexes complete runs, too.
func (s *Store) Purge(ctx context.Context, purge webhooks.Purge) (more bool, err error) {
	err = s.writer.run(ctx, func(b *batch) error {
		more, err = s.purge(b, &purge)
		return err
	})
	return more, err
}

func (s *Store) purge(b *batch, purge *webhooks.Purge) (more bool, err error) {
	if indexed, err := indexRun(b); indexed || err != nil {
		return true, err
	}
	payloads, attempts, ids := firstSince(b.tx, purge.Payloads), firstSince(b.tx, purge.Attempts), firstSince(b.tx, purge.EventIDs)
	left := purge.Limit
	for _, step := range []func() error{
		func() error { return s.expire(b, payloads, &left) },
		func() error { return deleteBefore(b, bucketBodies, payloads, &left) },
		func() error { return deleteBefore(b, bucketAttempts, attempts, &left) },
		func() error { return deleteBefore(b, bucketSkipped, attempts, &left) },
		func() error { return deleteBefore(b, bucketRuns, max(attempts, runSize)-runSize, &left) },
		func() error { return purgeEventIDs(b, ids, &left) },
		func() error { return deleteBefore(b, bucketEvents, min(attempts, number(b.tx, keyIDsGone)), &left) },
		func() error { return purgeRecoveries(b, purge.Attempts) },
		func() error { return deleteBefore(b, bucketNotices, uint64(max(purge.Notices.UnixMilli(), 0)), &left) },
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

// expire ends the deliveries owed of events before that number, but those leased.
func (s *Store) expire(b *batch, before uint64, left *int) error {
	type row struct {
		key     []byte
		webhook string
		seq     uint64
		number  int
	}
	var old []row
	c := b.tx.Bucket(bucketOwed).Cursor()
	for k, record := c.First(); k != nil && *left > 0; k, record = c.Next() {
		seq, id, ok := splitSeq(k)
		if !ok || seq >= before {
			break
		}
		webhook := string(id)
		if s.queue.Leased(webhook, seq) {
			continue
		}
		o, _ := decodeOwed(record)
		old = append(old, row{bytes.Clone(k), webhook, seq, o.Attempts + 1})
		*left--
	}
	for _, r := range old {
		attempt := webhooks.Expired(r.number, time.Now())
		if err := b.put(bucketAttempts, attemptKey(r.seq, r.webhook, r.number), encodeAttempt(&attempt, webhooks.GiveUp)); err != nil {
			return err
		}
		if err := b.delete(bucketOwed, r.key); err != nil {
			return err
		}
		b.done = append(b.done, func() { s.queue.Remove(r.webhook, r.seq) })
	}
	return nil
}

// deleteBefore deletes the records of events before that number, or notices until
// then.
func deleteBefore(b *batch, bucket []byte, before uint64, left *int) error {
	var old [][]byte // not deleted at once: a cursor skips keys after that
	c := b.tx.Bucket(bucket).Cursor()
	for k, _ := c.First(); k != nil && *left > 0; k, _ = c.Next() {
		if seq, _, ok := splitSeq(k); ok && seq >= before {
			break
		}
		old = append(old, bytes.Clone(k))
		*left--
	}
	return b.deleteAll(bucket, old)
}

// purgeEventIDs forgets the ids of events before that number.
func purgeEventIDs(b *batch, before uint64, left *int) error {
	next := number(b.tx, keyIDsGone)
	var seqs, ids [][]byte
	c := b.tx.Bucket(bucketEvents).Cursor()
	for k, record := c.Seek(seqKey(next, "")); k != nil && *left > 0; k, record = c.Next() {
		seq := binary.BigEndian.Uint64(k)
		if seq >= before {
			break
		}
		if event, err := decodeEvent(record); err == nil {
			seqs, ids = append(seqs, bytes.Clone(k)), append(ids, prefixed(event.ID, event.Account))
		}
		next = seq + 1
		*left--
	}
	if next == number(b.tx, keyIDsGone) {
		return nil
	}
	for i, id := range ids {
		// It may be that of a later event of the same id.
		if bytes.Equal(b.get(bucketEventIDs, id), seqs[i]) {
			if err := b.delete(bucketEventIDs, id); err != nil {
				return err
			}
		}
	}
	return b.put(bucketMeta, keyIDsGone, seqKey(next, ""))
}
