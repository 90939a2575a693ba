package bolt

import (
	"context"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// CreateWebhook implements [webhooks.Store].
func (s *Store) CreateWebhook(ctx context.Context, webhook webhooks.Webhook, with webhooks.CreateOptions) error {
	options := apikeys.CreateOptions(with)
	for {
		err := ofWebhook(s.createWebhook(ctx, &webhook, &options))
		if err != errLeftovers {
			return err
		}
		for swept := true; swept; {
			if swept, err = s.sweep(ctx, webhook.ID, sweepStep); err != nil {
				return err
			}
		}
	}
}

// sweepStep is how many rows go in a step.
const sweepStep = 1000

func (s *Store) createWebhook(ctx context.Context, webhook *webhooks.Webhook, options *apikeys.CreateOptions) error {
	return s.writer.Run(ctx, func(b *batch) error {
		if err := b.checkCredential(webhook.Account, options.By); err != nil {
			return err
		}
		if err := b.repeated(webhookRequest, webhook.Account, options); err != nil {
			return err
		}
		switch {
		case b.Get(bucketWebhookIDs, []byte(webhook.ID)) != nil:
			return webhooks.ErrExists
		case options.MaxCount > 0 && s.webhookCensus.of(b.tx, webhook.Account) >= options.MaxCount:
			return webhooks.ErrLimit
		case slices.Contains(b.deleted, webhook.ID), s.leftovers.has(webhook.ID):
			return errLeftovers
		}
		if err := s.requests.check(b, webhookRequest, webhook.Account, options); err != nil {
			return err
		}
		s.webhookCensus.add(webhook.Account, 1)
		if err := s.requests.note(b, webhookRequest, webhook.Account, webhook.ID, options); err != nil {
			return err
		}
		if err := b.Put(bucketWebhookIDs, []byte(webhook.ID), []byte(webhook.Account)); err != nil {
			return err
		}
		if err := s.alarm(b, webhook.Account); err != nil {
			return err
		}
		return s.putWebhook(b, webhook)
	})
}

// WebhookByID implements [webhooks.Store].
func (s *Store) WebhookByID(ctx context.Context, account, id string) (webhook webhooks.Webhook, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return webhook, err
	}
	defer s.done(tx, &err)
	return s.webhookByID(tx, account, id)
}

func (s *Store) webhookByID(tx *bbolt.Tx, account, id string) (webhooks.Webhook, error) {
	record := tx.Bucket(bucketWebhooks).Get(prefixed(account, id))
	if record == nil {
		return webhooks.Webhook{}, webhooks.ErrNotFound
	}
	return s.decodeWebhook(account, id, record)
}

// ListWebhooks implements [webhooks.Store].
func (s *Store) ListWebhooks(ctx context.Context, account string, page webhooks.Page) (list []webhooks.Webhook, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, &err)
	descend(tx.Bucket(bucketWebhooks), prefixed(account, ""), page.After, func(id, record []byte) bool {
		var webhook webhooks.Webhook
		if webhook, err = s.decodeWebhook(account, string(id), record); err != nil {
			return false
		}
		list = append(list, webhook)
		return len(list) < page.Limit
	})
	return list, err
}

// UpdateWebhook implements [webhooks.Store].
func (s *Store) UpdateWebhook(ctx context.Context, account, id string, change func(*webhooks.Webhook) error) (webhooks.Webhook, error) {
	var updated webhooks.Webhook
	err := s.writer.Run(ctx, func(b *batch) error {
		old, err := s.webhookByID(b.tx, account, id)
		if err != nil {
			return err
		}
		updated = old
		if err := change(&updated); err != nil {
			return err
		}
		updated.ID, updated.Account, updated.CreatedAt = old.ID, old.Account, old.CreatedAt
		if err := s.alarm(b, account); err != nil {
			return err
		}
		if err := s.putWebhook(b, &updated); err != nil {
			return err
		}
		updated, err = s.webhookByID(b.tx, account, id) // as it will be read
		return err
	})
	if err != nil {
		return webhooks.Webhook{}, err
	}
	return updated, nil
}

// DeleteWebhook implements [webhooks.Store].
func (s *Store) DeleteWebhook(ctx context.Context, account, id string, check func(webhooks.Webhook) error) error {
	return s.writer.Run(ctx, func(b *batch) error { return s.deleteWebhook(b, account, id, check) })
}

func (s *Store) deleteWebhook(b *batch, account, id string, check func(webhooks.Webhook) error) error {
	row := prefixed(account, id)
	if b.Get(bucketWebhooks, row) == nil {
		return webhooks.ErrNotFound
	}
	if check != nil { // without it, what cannot be read can be deleted
		webhook, err := s.webhookByID(b.tx, account, id)
		if err != nil {
			return err
		}
		if err := check(webhook); err != nil {
			return err
		}
	}
	s.subscriptions.forget(account)
	s.standings.forget(id)
	s.webhookCensus.add(account, -1)
	s.cache.changing()
	if err := b.Delete(bucketWebhooks, row); err != nil {
		return err
	}
	if err := b.Delete(bucketWebhookIDs, []byte(id)); err != nil {
		return err
	}
	if err := b.Delete(bucketFailing, []byte(id)); err != nil {
		return err
	}
	if err := s.alarm(b, account); err != nil {
		return err
	}
	b.deleted = append(b.deleted, id)
	b.AfterCommit(func() {
		s.cache.changed()
		s.leftovers.add(id, s.queue.Drop(id))
	})
	return nil
}

// webhookOf returns the webhook of that id, whatever its account.
func (s *Store) webhookOf(tx *bbolt.Tx, id string) (webhooks.Webhook, error) {
	account := tx.Bucket(bucketWebhookIDs).Get([]byte(id))
	if account == nil {
		return webhooks.Webhook{}, webhooks.ErrNotFound
	}
	return s.webhookByID(tx, string(account), id)
}

// putWebhook stores the webhook and lets the queue know whether it is active.
func (s *Store) putWebhook(b *batch, webhook *webhooks.Webhook) error {
	id, turn := webhook.ID, s.queue.Resume
	if !webhook.Active {
		turn = s.queue.Pause
	}
	b.AfterCommit(func() { turn(id) })
	s.subscriptions.forget(webhook.Account)
	return s.putRecord(b, webhook)
}

// putRecord stores a webhook whose subscription stays as it is.
func (s *Store) putRecord(b *batch, webhook *webhooks.Webhook) error {
	s.standings.forget(webhook.ID)
	s.cache.changing()
	id, standing := webhook.ID, queue.StandingOf(webhook)
	s.subscriptions.note(webhook.Account, id, standing)
	b.AfterCommit(func() {
		s.cache.changed()
		s.queue.SetStanding(id, standing)
	})
	if err := b.list(webhook); err != nil {
		return err
	}
	return b.Put(bucketWebhooks, prefixed(webhook.Account, webhook.ID), s.encodeWebhook(webhook))
}

// A webhook record does not repeat the account and id it stands under.
func (s *Store) encodeWebhook(w *webhooks.Webhook) []byte {
	secret, previous := s.keys.Seal(w.Secret, w.ID), s.keys.Seal(w.PreviousSecret, w.ID)
	e := newEncoder(64 + len(w.URL) + len(secret) + len(previous) + 32*(len(w.Events)+len(w.PastEvents)))
	e.time(w.FailingSince)
	e.time(w.WarnedAt)
	e.bool(w.Active)
	e.string(string(w.OffReason))
	e.eventTypes(w.Events)
	e.time(w.CreatedAt)
	e.uint(uint64(w.BalanceThreshold))
	e.string(w.URL)
	e.string(string(secret))
	e.string(string(previous))
	e.time(w.PreviousSecretExpiresAt)
	e.eventTypes(w.PastEvents)
	e.time(w.ProvenAt)
	e.string(w.FailingEvent)
	e.bool(w.FailedAgain)
	return e
}

func (e *encoder) eventTypes(types []webhooks.EventType) {
	e.uint(uint64(len(types)))
	for _, t := range types {
		e.string(string(t))
	}
}

func (d *decoder) eventTypes() (types []webhooks.EventType) {
	for range d.uint() {
		if d.failed {
			break
		}
		types = append(types, webhooks.EventType(d.string()))
	}
	return types
}

// readStanding returns the standing of a webhook. One that cannot be read has none:
// nothing is sent to it.
func readStanding(record []byte) standing {
	w, err := decodeWebhookRecord(record)
	if err != nil {
		return standing{proven: true}
	}
	return standing{failing: !w.FailingSince.IsZero(), again: w.FailedAgain, warned: !w.WarnedAt.IsZero(), proven: !w.ProvenAt.IsZero()}
}

func (s *Store) decodeWebhook(account, id string, record []byte) (webhooks.Webhook, error) {
	r, err := decodeWebhookRecord(record)
	if err != nil {
		return webhooks.Webhook{}, err
	}
	w := r.Webhook
	w.Account, w.ID = account, id
	if w.Secret, err = s.keys.Open(r.secret, id); err != nil {
		return webhooks.Webhook{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	if w.PreviousSecret, err = s.keys.Open(r.previous, id); err != nil {
		return webhooks.Webhook{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	return w, nil
}

// A webhookRecord is what a record holds, the secrets as they are stored.
type webhookRecord struct {
	webhooks.Webhook
	secret, previous []byte
}

func decodeWebhookRecord(record []byte) (w webhookRecord, err error) {
	d := newDecoder(record)
	w.FailingSince = d.time()
	w.WarnedAt = d.time()
	w.Active = d.bool()
	w.OffReason = webhooks.OffReason(d.string())
	w.Events = d.eventTypes()
	w.CreatedAt = d.time()
	w.BalanceThreshold = webhooks.Amount(d.uint())
	w.URL = d.string()
	w.secret = d.raw(d.uint())
	w.previous = d.raw(d.uint())
	w.PreviousSecretExpiresAt = d.time()
	w.PastEvents = d.eventTypes()
	if len(d.rest) > 0 { // records of before it was kept end here
		w.ProvenAt = d.time()
	}
	if len(d.rest) > 0 { // and those of before these were, here
		w.FailingEvent = d.string()
		w.FailedAgain = d.bool()
	}
	if d.failed {
		return webhookRecord{}, errRecord
	}
	return w, nil
}
