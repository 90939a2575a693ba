package bolt

import (
	"bytes"
	"context"
	"errors"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// ClaimDeliveries implements [webhooks.Store].
func (s *Store) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) (tasks []webhooks.Task, wait time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if err := s.writer.Ready(); err != nil {
		return nil, 0, err // the outcome of an attempt could not be recorded
	}
	claimed, wait := s.queue.Claim(time.Now(), claim)
	defer func() {
		if err != nil {
			for _, c := range claimed {
				s.queue.Release(c.Token)
			}
		}
	}()
	version := s.index.readVersion()
	// Begun after the claim, it sees all that the queue knows.
	tx, err := s.view(context.WithoutCancel(ctx))
	if err != nil {
		return nil, 0, err
	}
	defer s.done(tx, &err)
	r := s.newTaskReader(tx, version)
	tasks = make([]webhooks.Task, 0, len(claimed))
	for _, c := range claimed {
		task := r.read(c)
		if errors.Is(task.Err, webhooks.ErrNotFound) || task.Err == nil && !task.Webhook.Claimable() {
			s.queue.Release(c.Token) // deleted, turned off or held just now: the queue will hear of it
			continue
		}
		tasks = append(tasks, task)
	}
	return tasks, wait, nil
}

// A taskReader reads what a claim is about, an event that is for several webhooks once.
type taskReader struct {
	store    *Store
	tx       *bbolt.Tx
	segments *segments
	bodies   *bbolt.Cursor
	version  uint64 // of the index, before tx

	// The segment that was looked at last, and its event. The numbers before end,
	// from first on, are the event's.
	segment    *record.Segment
	packed     record.Pack // its bodies; empty if it cannot be read
	first, end uint64
	event      webhooks.EncodedEvent
	eventErr   error
}

func (s *Store) newTaskReader(tx *bbolt.Tx, version uint64) *taskReader {
	return &taskReader{
		store: s, tx: tx, version: version, segments: newSegments(tx), bodies: tx.Bucket(bucketEvents).Cursor(),
	}
}

// read returns the task of a claim. Its Err is ErrNotFound if the webhook is gone.
func (r *taskReader) read(c queue.Claimed) (task webhooks.Task) {
	task.Attempt, task.Before, task.Token, task.Probe = c.Attempt, c.Before, c.Token, c.Probe
	defer func() { // a damaged page is a damaged record
		if p := recover(); p != nil {
			task.Webhook, task.Err = &webhooks.Webhook{ID: c.Webhook}, record.ErrCorrupt
		}
	}()
	var held bool
	if task.Event, held = r.store.published.take(c.Seq); !held {
		if c.Seq < r.first || c.Seq >= r.end {
			r.readEvent(c.Seq)
		}
		task.Event, task.Err = r.event, r.eventErr
	}
	var err error
	if task.Webhook, err = r.store.claimed(r.tx, c.Webhook, r.version); err != nil {
		task.Webhook, task.Err = &webhooks.Webhook{ID: c.Webhook}, err
	}
	return task
}

// readEvent reads the event whose delivery has the number.
func (r *taskReader) readEvent(number uint64) {
	r.first, r.end, r.event = 0, 0, webhooks.EncodedEvent{} // should reading panic
	if r.segment == nil || number < r.segment.First || number > r.segment.Last {
		if r.segment, r.eventErr = r.segments.at(number); r.eventErr != nil {
			return
		}
		r.packed = record.Pack{}
		r.packed, _ = record.DecodePack(get(r.bodies, bodiesKey(r.segment.Key)))
	}
	i := r.segment.Index(number)
	event, err := r.segment.Event(i)
	r.event, r.eventErr = event.EncodedEvent, err
	body := r.packed.At(i)
	if body == nil {
		r.eventErr = record.ErrCorrupt
	}
	r.event.Body = bytes.Clone(body)
	r.first, r.end = r.segment.Number(i), r.segment.End(i)
}

// get is [bbolt.Bucket.Get] with a cursor that is there already.
func get(c *bbolt.Cursor, key []byte) []byte {
	if k, value := c.Seek(key); bytes.Equal(k, key) {
		return value
	}
	return nil
}
