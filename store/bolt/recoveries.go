package bolt

import (
	"bytes"
	"context"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// CreateRecovery implements [driver.WebhookStore].
func (s *engine) CreateRecovery(ctx context.Context, created driver.Recovery, entry audit.Entry) error {
	return s.writer.Run(ctx, func(b *batch) error {
		if b.isErasing(created.Account) {
			return auth.ErrErasing
		}
		if b.Get(schema.Webhooks, record.Prefixed(created.Account, created.WebhookID)) == nil {
			return apierr.ErrNotFound
		}
		if b.Get(schema.Recoveries, []byte(created.ID)) != nil {
			return apierr.ErrExists
		}
		if b.Get(schema.OpenRecoveries, []byte(created.WebhookID)) != nil {
			return driver.ErrRecovering
		}
		r := record.Recovery{Recovery: created}
		if r.To.IsZero() {
			r.To = afterAll(b.log.LastPublished())
		}
		if err := b.tell(entry); err != nil {
			return err
		}
		return putRecovery(b, &r)
	})
}

// afterAll returns a time after all events published so far. last is the publication time of the
// last event.
func afterAll(last time.Time) time.Time {
	if now := time.Now(); now.After(last) {
		last = now
	}
	return last.Add(time.Millisecond)
}

// RecoveryByID implements [driver.WebhookStore].
func (s *engine) RecoveryByID(ctx context.Context, account, id string) (found driver.Recovery, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return found, err
	}
	defer s.done(tx, catchFaults(), &err)
	r, err := recoveryByID(tx, id)
	if err == nil && (r.Account != account || s.erasing.has(account)) {
		return found, apierr.ErrNotFound
	}
	return r.Recovery, err
}

// AdvanceRecovery implements [driver.WebhookStore].
func (s *engine) AdvanceRecovery(ctx context.Context, limit int) (advanced bool, err error) {
	var last []byte
	again := false
	err = s.writer.Run(ctx, func(b *batch) error {
		if !again { // a repeated step must not skip a recovery
			last, again = s.lastRecovery, true
		}
		webhook, id := nextRecovery(b.tx, last)
		if advanced = webhook != nil; !advanced {
			return nil
		}
		s.lastRecovery = webhook
		if err := b.Flush(); err != nil {
			return err
		}
		r, err := recoveryByID(b.tx, id)
		if err != nil { // an unreadable recovery must not block the others
			return b.Delete(schema.OpenRecoveries, webhook)
		}
		if err := s.advance(b, &r, limit); err != nil {
			return err
		}
		return putRecovery(b, &r)
	})
	return advanced, err
}

// nextRecovery returns the first webhook after last that has an unfinished recovery, and the ID of
// the recovery. After the end of the list, it starts again at the beginning. webhook is nil if all
// recoveries are done.
func nextRecovery(tx *bbolt.Tx, last []byte) (webhook []byte, id string) {
	c := tx.Bucket(schema.OpenRecoveries).Cursor()
	k, value := c.Seek(last)
	if bytes.Equal(k, last) {
		k, value = c.Next()
	}
	if k == nil {
		k, value = c.First()
	}
	return bytes.Clone(k), record.DecodeID(value)
}

// advance examines the recovery's next deliveries, up to limit, and schedules them for immediate
// sending.
func (s *engine) advance(b *batch, r *record.Recovery, limit int) error {
	webhook, err := s.webhookByID(b.tx, r.Account, r.WebhookID)
	if err != nil || b.isErasing(r.Account) { // deleted or unreadable
		r.Done = true
		return nil
	}
	query := driver.DeliveryQuery{States: r.States, Resources: webhook.Resources, From: r.From, To: r.To}
	now := time.Now()
	r.Next, r.Done, err = b.log.View().Walk(r.WebhookID, &query, r.Next, limit, func(n uint64, d *driver.Delivery) error {
		if d.State == driver.Pending {
			waits, err := s.endWait(b, &webhook, n, now)
			if waits {
				r.Recovered++
			}
			return err
		}
		r.Recovered++
		return s.addPending(b, &webhook, n, record.Pending{Attempts: lastNumber(d), Recovered: true})
	})
	return err
}

func recoveryByID(tx *bbolt.Tx, id string) (record.Recovery, error) {
	value := tx.Bucket(schema.Recoveries).Get([]byte(id))
	if value == nil {
		return record.Recovery{}, apierr.ErrNotFound
	}
	return record.DecodeRecovery(id, value)
}

// putRecovery stores a recovery, and updates the index of unfinished recoveries.
func putRecovery(b *batch, r *record.Recovery) error {
	var err error
	if r.Done {
		err = b.Delete(schema.OpenRecoveries, []byte(r.WebhookID))
	} else {
		err = b.Put(schema.OpenRecoveries, []byte(r.WebhookID), record.EncodeID(r.ID))
	}
	if err != nil {
		return err
	}
	return putRecoveryRow(b, r)
}

// putRecoveryRow stores a recovery. If the recovery is new and its webhook then has more than
// driver.MaxRecoveries, it removes the oldest ones.
func putRecoveryRow(b *batch, r *record.Recovery) error {
	isNew := b.Get(schema.Recoveries, []byte(r.ID)) == nil
	if err := b.Put(schema.Recoveries, []byte(r.ID), r.Encode()); err != nil || !isNew {
		return err
	}
	if err := b.Put(schema.RecoveryTimes, record.RecoveryTimeKey(r), nil); err != nil {
		return err
	}
	if b.Get(schema.WebhookIDs, []byte(r.WebhookID)) == nil {
		return nil // the webhook is deleted: no more recoveries will follow
	}
	// Ignore the error: a damaged row counts as empty.
	ids, _ := record.DecodeIDs(b.Get(schema.WebhookRecoveries, []byte(r.WebhookID)))
	for ids = append(ids, r.ID); len(ids) > driver.MaxRecoveries; ids = ids[1:] {
		if err := forgetRecovery(b, ids[0]); err != nil {
			return err
		}
	}
	return b.Put(schema.WebhookRecoveries, []byte(r.WebhookID), record.EncodeIDs(ids))
}

// forgetRecovery removes a recovery if it is done. Unreadable recoveries remain until they are
// purged.
func forgetRecovery(b *batch, id string) error {
	r, err := recoveryByID(b.tx, id)
	if err != nil || !r.Done {
		return nil
	}
	if err := b.Delete(schema.RecoveryTimes, record.RecoveryTimeKey(&r)); err != nil {
		return err
	}
	return b.Delete(schema.Recoveries, []byte(id))
}

// purgeRecoveries deletes finished and unreadable recoveries created before the given time, at most
// *left, and subtracts their number from *left.
func purgeRecoveries(b *batch, before time.Time, left *int) error {
	var times, old [][]byte // deleted after the loop: a cursor skips keys after a deletion
	c := b.tx.Bucket(schema.RecoveryTimes).Cursor()
	end := record.TimeKey(before)
	for k, _ := c.First(); k != nil && bytes.Compare(k, end) < 0 && *left > 0; k, _ = c.Next() {
		id := k[min(8, len(k)):]
		if r, err := recoveryByID(b.tx, string(id)); err == nil && !r.Done {
			continue
		}
		times, old = append(times, bytes.Clone(k)), append(old, bytes.Clone(id))
		*left--
	}
	if err := b.DeleteAll(schema.RecoveryTimes, times); err != nil {
		return err
	}
	return b.DeleteAll(schema.Recoveries, old)
}
