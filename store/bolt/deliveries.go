package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/internal/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// ClaimDeliveries implements [webhooks.Store].
func (s *Store) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) (tasks []webhooks.Task, wait time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	claimed, wait := s.queue.Claim(time.Now(), claim)
	defer func() {
		if err != nil {
			for _, c := range claimed {
				s.queue.Free(c.Token)
			}
		}
	}()
	changes := s.cache.changes.Load()
	// Begun after the claim, it sees all that the queue knows.
	tx, err := s.view(context.WithoutCancel(ctx))
	if err != nil {
		return nil, 0, err
	}
	defer s.done(tx, &err)
	r := s.newTaskReader(tx, changes)
	tasks = make([]webhooks.Task, 0, len(claimed))
	for _, c := range claimed {
		task := r.read(c)
		if errors.Is(task.Err, webhooks.ErrNotFound) || task.Err == nil && !task.Webhook.Active {
			s.queue.Free(c.Token) // deleted or turned off just now: the queue will hear of it
			continue
		}
		tasks = append(tasks, task)
	}
	return tasks, wait, nil
}

// A taskReader reads what a claim is about, each webhook once, and an event that is
// for several of them once.
type taskReader struct {
	store                *Store
	tx                   *bbolt.Tx
	eventRecords, bodies *bbolt.Cursor
	rows                 *bbolt.Bucket
	changes              uint64 // of webhooks, before tx
	webhooks             map[string]foundWebhook
	seq                  uint64 // of event
	event                webhooks.Envelope
	eventErr             error
}

type foundWebhook struct {
	webhook webhooks.Webhook
	err     error
}

func (s *Store) newTaskReader(tx *bbolt.Tx, changes uint64) *taskReader {
	return &taskReader{
		store: s, tx: tx, changes: changes, eventRecords: tx.Bucket(bucketEvents).Cursor(), bodies: tx.Bucket(bucketBodies).Cursor(),
		rows:     tx.Bucket(bucketWebhooks),
		webhooks: make(map[string]foundWebhook),
	}
}

// read returns the task of a claim. Its Err is ErrNotFound if the webhook is gone.
func (r *taskReader) read(c queue.Claimed) (task webhooks.Task) {
	task.Attempt, task.Before, task.Token = c.Attempt, c.Before, c.Token
	defer func() { // a damaged page is a damaged record
		if p := recover(); p != nil {
			task.Webhook.ID, task.Err = c.Webhook, errRecord
		}
	}()
	if c.Seq != r.seq {
		r.readEvent(c.Seq)
	}
	task.Event, task.Err = r.event, r.eventErr
	found, known := r.webhooks[c.Webhook]
	if !known {
		found.webhook, found.err = r.store.claimed(r.tx, r.rows, c.Webhook, r.changes)
		r.webhooks[c.Webhook] = found
	}
	if task.Webhook = found.webhook; found.err != nil {
		task.Webhook.ID, task.Err = c.Webhook, found.err
	}
	return task
}

func (r *taskReader) readEvent(seq uint64) {
	r.seq, r.event, r.eventErr = 0, webhooks.Envelope{}, nil // 0 is no event's, should reading panic
	key := seqKey(seq, "")
	event, err := decodeEvent(get(r.eventRecords, key))
	r.event, r.eventErr = event.Envelope, err
	if r.event.Body, err = decodeBody(get(r.bodies, key)); err != nil {
		r.eventErr = err
	}
	r.seq = seq
}

// get is [bbolt.Bucket.Get] with a cursor that is there already.
func get(c *bbolt.Cursor, key []byte) []byte {
	if k, value := c.Seek(key); bytes.Equal(k, key) {
		return value
	}
	return nil
}

// SettleDeliveries implements [webhooks.Store].
func (s *Store) SettleDeliveries(ctx context.Context, settlements []webhooks.Settlement) ([]int, error) {
	var stale []int
	held := make([]holding, 0, len(settlements))
	for i := range settlements {
		token := settlements[i].Task.Token
		if webhook, seq, ok := s.queue.Hold(token); ok {
			held = append(held, holding{i, token, webhook, seq, seqKey(seq, webhook)})
		} else {
			stale = append(stale, i)
		}
	}
	var gone []int // stale by the time the step ran
	err := s.writer.run(ctx, func(b *batch) error {
		gone = nil
		rows := b.tx.Bucket(bucketOwed).Cursor()
		for _, h := range held {
			if row, _ := rows.Seek(h.row); !bytes.Equal(row, h.row) {
				gone = append(gone, h.index)
				b.done = append(b.done, func() { s.queue.Done(h.token) })
				continue
			}
			if err := s.settle(b, rows, h, &settlements[h.index]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		for _, h := range held {
			s.queue.Unhold(h.token)
		}
		return nil, err
	}
	stale = append(stale, gone...)
	slices.Sort(stale)
	return stale, nil
}

// A holding is a settlement's lease, kept from running out.
type holding struct {
	index   int // of the settlement
	token   uint64
	webhook string
	seq     uint64
	row     []byte // key of the owed record
}

// settle takes one of the settlements of a step, with rows at what it was owed.
func (s *Store) settle(b *batch, rows *bbolt.Cursor, h holding, settlement *webhooks.Settlement) error {
	if settlement.Outcome == webhooks.Release {
		b.done = append(b.done, func() { s.queue.Free(h.token) })
	} else if err := logAttempt(b, h.seq, h.webhook, &settlement.Attempt, settlement.Outcome); err != nil {
		return err
	}
	switch settlement.Outcome {
	case webhooks.Retry:
		due, attempts, before := time.Now().Add(settlement.RetryAfter), settlement.Attempt.Number, settlement.Task.Before
		recovered := false
		if o, err := decodeOwed(b.get(bucketOwed, h.row)); err == nil {
			recovered = o.Recovered
		}
		if err := b.put(bucketOwed, h.row, encodeOwed(due, attempts, before, recovered)); err != nil {
			return err
		}
		b.done = append(b.done, func() { s.queue.Retry(h.token, due, attempts) })
	case webhooks.Deliver, webhooks.GiveUp:
		b.dirty = true
		if err := rows.Delete(); err != nil {
			return err
		}
		b.done = append(b.done, func() { s.queue.Done(h.token) })
	}
	return s.settleWebhook(b, h.webhook, settlement)
}

// settleWebhook records what a settlement means for its webhook, which is mostly
// nothing new.
func (s *Store) settleWebhook(b *batch, id string, settlement *webhooks.Settlement) error {
	fails := s.failing.is(b, id)
	ends, begins := fails && settlement.Outcome == webhooks.Deliver, !fails && settlement.Fails()
	if !ends && !begins && !settlement.Warned && settlement.Deactivate == "" {
		return nil
	}
	webhook, err := s.webhookOf(b.tx, id)
	if err != nil {
		return nil // it cannot be read, so nothing is sent to it either
	}
	if webhook.URL != settlement.Task.Webhook.URL {
		return nil
	}
	if ends {
		webhook.FailingSince, webhook.WarnedAt = time.Time{}, time.Time{}
	}
	if begins {
		webhook.FailingSince = settlement.Attempt.StartedAt
	}
	if settlement.Warned {
		webhook.WarnedAt = settlement.Attempt.StartedAt
	}
	if settlement.Deactivate == "" {
		return s.putRecord(b, &webhook)
	}
	webhook.Active, webhook.OffReason = false, settlement.Deactivate
	return s.putWebhook(b, &webhook)
}

// logAttempt stores an attempt, and forgets those that are too many by now.
func logAttempt(b *batch, seq uint64, webhook string, a *webhooks.Attempt, outcome webhooks.Outcome) error {
	if a.Number > webhooks.MaxAttempts {
		var old [][]byte
		c := b.tx.Bucket(bucketAttempts).Cursor()
		last := attemptKey(seq, webhook, a.Number-webhooks.MaxAttempts)
		for k, _ := c.Seek(attemptKey(seq, webhook, 0)); k != nil && bytes.Compare(k, last) <= 0; k, _ = c.Next() {
			old = append(old, bytes.Clone(k))
		}
		if err := b.deleteAll(bucketAttempts, old); err != nil {
			return err
		}
	}
	return b.add(bucketAttempts, attemptKey(seq, webhook, a.Number), encodeAttempt(a, outcome))
}

func attemptKey(seq uint64, webhook string, number int) []byte {
	key := append(seqKey(seq, ""), prefixed(webhook, "")...)
	return binary.BigEndian.AppendUint32(key, uint32(number))
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

// EventDeliveries implements [webhooks.Store].
func (s *Store) EventDeliveries(ctx context.Context, account, eventID string) (list []webhooks.Delivery, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, &err)
	seq := tx.Bucket(bucketEventIDs).Get(prefixed(eventID, account))
	if seq == nil {
		return nil, webhooks.ErrNotFound
	}
	return deliveriesOf(tx, binary.BigEndian.Uint64(seq), "")
}

// deliveryOf returns the event's delivery to one webhook; without a State if there
// is none.
func deliveryOf(tx *bbolt.Tx, seq uint64, webhook string) (webhooks.Delivery, error) {
	list, err := deliveriesOf(tx, seq, webhook)
	if err != nil || len(list) == 0 {
		return webhooks.Delivery{}, err
	}
	return list[0], nil
}

// deliveriesOf puts together the event's deliveries to all webhooks, by ascending
// id, or to the one given: what is owed, or else what settled it, or else that it
// was skipped.
func deliveriesOf(tx *bbolt.Tx, seq uint64, webhook string) ([]webhooks.Delivery, error) {
	event, err := decodeEvent(tx.Bucket(bucketEvents).Get(seqKey(seq, "")))
	if err != nil {
		return nil, err
	}
	var list []webhooks.Delivery
	of := func(id string) *webhooks.Delivery {
		i, known := slices.BinarySearchFunc(list, id, func(d webhooks.Delivery, id string) int { return strings.Compare(d.WebhookID, id) })
		if !known {
			list = slices.Insert(list, i, webhooks.Delivery{EventID: event.ID, WebhookID: id, Type: event.Type, PublishedAt: event.published})
		}
		return &list[i]
	}
	err = each(tx, bucketAttempts, seq, webhook, func(id string, record []byte) error {
		attempt, outcome, err := decodeAttempt(record)
		if err != nil {
			return err
		}
		d := of(id)
		d.Attempts = append(d.Attempts, attempt)
		switch outcome {
		case webhooks.Deliver:
			d.State = webhooks.Delivered
		case webhooks.GiveUp:
			d.State = webhooks.Dead
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = each(tx, bucketSkipped, seq, webhook, func(id string, _ []byte) error {
		of(id).State = webhooks.Skipped
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = each(tx, bucketOwed, seq, webhook, func(id string, record []byte) error {
		o, err := decodeOwed(record)
		if err != nil {
			return err
		}
		d := of(id)
		d.State, d.NextAttemptAt = webhooks.Pending, o.Due
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Those that are nothing of it were owed to a webhook that was deleted.
	return slices.DeleteFunc(list, func(d webhooks.Delivery) bool { return d.State == "" }), nil
}

// each calls visit for the records of an event in one of the buckets owed, skipped
// and attempts, in order: of all webhooks, or of the one given.
func each(tx *bbolt.Tx, bucket []byte, seq uint64, webhook string, visit func(id string, record []byte) error) error {
	prefix := seqKey(seq, "")
	if webhook != "" && !bytes.Equal(bucket, bucketAttempts) {
		key := seqKey(seq, webhook)
		if record := tx.Bucket(bucket).Get(key); record != nil {
			return visit(webhook, record)
		}
		return nil
	}
	if webhook != "" {
		prefix = append(prefix, prefixed(webhook, "")...)
	}
	c := tx.Bucket(bucket).Cursor()
	for k, record := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, record = c.Next() {
		id, err := webhookIn(bucket, k)
		if err != nil {
			return err
		}
		if err := visit(id, record); err != nil {
			return err
		}
	}
	return nil
}

// webhookIn returns the webhook id in a key of the buckets owed, skipped and
// attempts.
func webhookIn(bucket, key []byte) (string, error) {
	_, rest, ok := splitSeq(key)
	if !ok {
		return "", errRecord
	}
	if !bytes.Equal(bucket, bucketAttempts) {
		return string(rest), nil
	}
	d := decoder{rest: rest}
	id := d.string()
	return id, d.err()
}
