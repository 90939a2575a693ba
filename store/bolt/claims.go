package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
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
	defer debug.SetPanicOnFault(catchFaults())
	r := &taskReader{store: s, ctx: context.WithoutCancel(ctx)}
	defer r.end()
	tasks = make([]webhooks.Task, 0, len(claimed))
	for _, c := range claimed {
		task := r.read(c)
		if r.err != nil {
			return nil, 0, r.err
		}
		if errors.Is(task.Err, webhooks.ErrNotFound) || task.Err == nil && !task.Webhook.Claimable() {
			s.queue.Release(c.Token) // deleted, turned off or held just now: the queue will hear of it
			continue
		}
		tasks = append(tasks, task)
	}
	return tasks, wait, nil
}

// A taskReader reads what a claim is about, an event that is for several webhooks once. Most of it is in memory.
type taskReader struct {
	store *Store
	ctx   context.Context

	// The transaction, once something is to be read of the file. Begun after the claim, it sees all that the queue knows.
	tx       *bbolt.Tx
	err      error // why there is none
	segments *segments
	bodies   *bbolt.Cursor
	version  uint64 // of the index, before tx

	// The segment that was looked at last, and its event. The numbers before after,
	// from first on, are the event's.
	segment      *record.Segment
	packed       record.Pack // its bodies; empty if it cannot be read
	first, after uint64
	event        webhooks.EncodedEvent
	eventErr     error
}

// begin begins the transaction, unless that was done, and reports whether there is one.
func (r *taskReader) begin() bool {
	if r.tx != nil || r.err != nil {
		return r.err == nil
	}
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("read %s: panic: %v", r.store.db.Path(), p)
		}
	}()
	r.version = r.store.index.readVersion()
	if r.tx, r.err = r.store.view(r.ctx); r.err == nil {
		r.segments, r.bodies = newSegments(r.tx), r.tx.Bucket(bucketEvents).Cursor()
	}
	return r.err == nil
}

// end ends it.
func (r *taskReader) end() {
	if r.tx != nil {
		_ = r.tx.Rollback()
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
		if (c.Seq < r.first || c.Seq >= r.after) && r.begin() {
			r.readEvent(c.Seq)
		}
		task.Event, task.Err = r.event, r.eventErr
	}
	var err error
	if task.Webhook, err = r.webhook(c.Webhook); err != nil {
		task.Webhook, task.Err = &webhooks.Webhook{ID: c.Webhook}, err
	}
	return task
}

// webhook returns the webhook of that id: as it is by now, or as readers of the transaction see it.
func (r *taskReader) webhook(id string) (*webhooks.Webhook, error) {
	w, changing := r.store.index.webhook(id)
	if w == nil || changing {
		if !r.begin() {
			return nil, r.err
		}
		if w = r.store.readIndexed(r.tx, id); w == nil {
			return nil, webhooks.ErrNotFound
		}
		r.store.index.putRead(w, r.version)
	}
	return &w.Webhook, w.err
}

// readEvent reads the event whose delivery has the number.
func (r *taskReader) readEvent(number uint64) {
	r.first, r.after, r.event = 0, 0, webhooks.EncodedEvent{} // should reading panic
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
	r.first, r.after = r.segment.Number(i), r.segment.End(i)
}

// get is [bbolt.Bucket.Get] with a cursor that is there already.
func get(c *bbolt.Cursor, key []byte) []byte {
	if k, value := c.Seek(key); bytes.Equal(k, key) {
		return value
	}
	return nil
}
