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

// loadQueue tells the queue what the file says is owed, and forgets what is owed
// to webhooks that are gone.
func (s *Store) loadQueue() error {
	var orphans [][]byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		type lane struct {
			id            string
			gone, passive bool
		}
		lanes := make(map[string]lane)
		now := time.Now()
		err := tx.Bucket(bucketOwed).ForEach(func(k, record []byte) error {
			seq, webhook, ok := splitOwed(k)
			if !ok {
				return nil
			}
			l, known := lanes[string(webhook)]
			if !known {
				l.id = string(webhook)
				found, err := webhookOf(tx, l.id)
				l.gone = errors.Is(err, webhooks.ErrNotFound)
				l.passive = err == nil && !found.Active
				lanes[l.id] = l
			}
			due, attempts, err := decodeOwed(record)
			switch {
			case l.gone:
				orphans = append(orphans, bytes.Clone(k))
				return nil
			case err != nil:
				due, attempts = now, 0 // its event is there: better late than never
			}
			s.queue.Add(l.id, seq, due, attempts)
			return nil
		})
		for _, l := range lanes {
			if l.passive {
				s.queue.Pause(l.id)
			}
		}
		return err
	})
	if err != nil || len(orphans) == 0 {
		return err
	}
	return s.writer.run(context.Background(), func(b *batch) error {
		for _, k := range orphans {
			if err := b.delete(bucketOwed, k); err != nil {
				return err
			}
		}
		return nil
	})
}

// webhookOf returns the webhook of that id, whatever its account.
func webhookOf(tx *bbolt.Tx, id string) (webhooks.Webhook, error) {
	account := tx.Bucket(bucketWebhookIDs).Get([]byte(id))
	if account == nil {
		return webhooks.Webhook{}, webhooks.ErrNotFound
	}
	return webhookByID(tx, string(account), id)
}

// ClaimDeliveries implements [webhooks.Store].
func (s *Store) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) (tasks []webhooks.Task, wait time.Duration, err error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	claimed, wait := s.queue.Claim(time.Now(), claim.Limit, claim.PerWebhook, claim.Lease)
	defer func() {
		if err != nil {
			for _, c := range claimed {
				s.queue.Free(c.Token)
			}
		}
	}()
	// Begun after the claim, it sees all that the queue knows.
	tx, err := s.view(context.WithoutCancel(ctx))
	if err != nil {
		return nil, 0, err
	}
	defer s.done(tx, &err)
	for _, c := range claimed {
		task := readTask(tx, c)
		if errors.Is(task.Err, webhooks.ErrNotFound) || task.Err == nil && !task.Webhook.Active {
			s.queue.Free(c.Token) // deleted or turned off just now: the queue will hear of it
			continue
		}
		tasks = append(tasks, task)
	}
	return tasks, wait, nil
}

// readTask reads what a claim is about. Its Err is ErrNotFound if the webhook is
// gone.
func readTask(tx *bbolt.Tx, c queue.Claimed) (task webhooks.Task) {
	task.Attempt, task.Token = c.Attempt, c.Token
	defer func() { // a damaged page is a damaged record
		if p := recover(); p != nil {
			task.Webhook.ID, task.Err = c.Webhook, errRecord
		}
	}()
	event, err := decodeEvent(tx.Bucket(bucketEvents).Get(seqKey(c.Seq, "")))
	if err != nil {
		task.Err = err
	}
	task.Event = event.Envelope
	if task.Webhook, err = webhookOf(tx, c.Webhook); err != nil {
		task.Webhook.ID, task.Err = c.Webhook, err
	}
	return task
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
		for _, h := range held {
			if b.get(bucketOwed, h.row) == nil {
				gone = append(gone, h.index)
				b.done = append(b.done, func() { s.queue.Done(h.token) })
				continue
			}
			if err := s.settle(b, h, &settlements[h.index]); err != nil {
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

func (s *Store) settle(b *batch, h holding, settlement *webhooks.Settlement) error {
	if settlement.Outcome == webhooks.Release {
		b.done = append(b.done, func() { s.queue.Free(h.token) })
	} else if err := b.add(bucketAttempts, attemptKey(h, settlement.Attempt.Number), encodeAttempt(settlement)); err != nil {
		return err
	}
	switch settlement.Outcome {
	case webhooks.Retry:
		due, attempts := time.Now().Add(settlement.RetryAfter), settlement.Attempt.Number
		if err := b.put(bucketOwed, h.row, encodeOwed(due, attempts)); err != nil {
			return err
		}
		b.done = append(b.done, func() { s.queue.Retry(h.token, due, attempts) })
	case webhooks.Deliver, webhooks.GiveUp:
		if err := b.delete(bucketOwed, h.row); err != nil {
			return err
		}
		b.done = append(b.done, func() { s.queue.Done(h.token) })
	}
	if settlement.Deactivate {
		return s.deactivate(b, h.webhook)
	}
	return nil
}

func (s *Store) deactivate(b *batch, id string) error {
	webhook, err := webhookOf(b.tx, id)
	if err != nil {
		return nil // it cannot be read, so nothing is sent to it either
	}
	webhook.Active = false
	return s.putWebhook(b, &webhook)
}

func attemptKey(h holding, number int) []byte {
	key := append(seqKey(h.seq, ""), prefixed(h.webhook, "")...)
	return binary.BigEndian.AppendUint32(key, uint32(number))
}

// An attempt record holds what became of the delivery with it.
func encodeAttempt(s *webhooks.Settlement) []byte {
	e := newEncoder(32 + len(s.Attempt.Error))
	e.byte(byte(s.Outcome))
	e.uint(uint64(s.Attempt.Number))
	e.time(s.Attempt.StartedAt)
	e.int(int64(s.Attempt.Duration / time.Microsecond))
	e.uint(uint64(s.Attempt.Status))
	e.string(s.Attempt.Error)
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
	a.Error = d.string()
	return a, outcome, d.err()
}

// stateAfter returns the state of a delivery that is not owed, by its last
// attempt's outcome; "" if that did not settle it.
func stateAfter(outcome webhooks.Outcome) webhooks.DeliveryState {
	switch outcome {
	case webhooks.Deliver:
		return webhooks.Delivered
	case webhooks.GiveUp:
		return webhooks.Dead
	}
	return ""
}

// settledOrOwed leaves out the deliveries that are neither, since their webhook
// was deleted, and sorts the rest by webhook.
func settledOrOwed(list []webhooks.Delivery) []webhooks.Delivery {
	list = slices.DeleteFunc(list, func(d webhooks.Delivery) bool { return d.State == "" })
	slices.SortFunc(list, func(a, b webhooks.Delivery) int { return strings.Compare(a.WebhookID, b.WebhookID) })
	return list
}
