package bolt

import (
	"bytes"
	"context"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/store/bolt/internal/alertcache"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// UpdateAlert implements [driver.AlertStore].
func (s *engine) UpdateAlert(ctx context.Context, account, series string, change func(*driver.AlertStep) error) (deliveries int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	row := record.Prefixed(account, series)
	if answered, err := s.alerts.Answer(account, row, change); answered || err != nil {
		return 0, err
	}
	defer s.alerts.Writing(row)()
	err = s.writer.Run(ctx, func(b *batch) error {
		deliveries, err = s.updateAlert(b, row, account, change)
		return err
	})
	return deliveries, err
}

// readAlert reads an alert from the file in a new transaction.
func (s *engine) readAlert(row []byte) (a alertcache.Alert, err error) {
	tx, err := s.view(context.Background())
	if err != nil {
		return a, err
	}
	defer s.done(tx, catchFaults(), &err)
	return readAlert(tx, row), nil
}

// readAlert reads an alert. It treats an unreadable alert as missing, so that the next update
// replaces it.
func readAlert(tx *bbolt.Tx, row []byte) alertcache.Alert {
	a := alertcache.Alert{
		Stored: bytes.Clone(tx.Bucket(schema.Alerts).Get(row)),
		Due:    tx.Bucket(schema.DueAlerts).Get(row) != nil,
	}
	a.State = record.DecodeAlert(a.Stored)
	return a
}

// updateAlert does the work of UpdateAlert within a transaction.
func (s *engine) updateAlert(b *batch, row []byte, account string, change func(*driver.AlertStep) error) (deliveries int, err error) {
	if b.isErasing(account) {
		return 0, auth.ErrErasing
	}
	a := readAlert(b.tx, row)
	step := driver.AlertStep{State: s.stateOf(b, row, a), Due: a.Due, Webhooks: func() []driver.Webhook { return s.readableWebhooks(b, account) }}
	if err := change(&step); err != nil {
		return 0, err
	}
	next := alertcache.Alert{State: bytes.Clone(step.State)}
	if len(next.State) > 0 {
		next.Stored = record.EncodeAlert(next.State)
	}
	if !bytes.Equal(next.Stored, a.Stored) {
		if err := b.PutOrDelete(schema.Alerts, row, next.Stored); err != nil {
			return 0, err
		}
	}
	if a.Due {
		if err := b.Delete(schema.DueAlerts, row); err != nil {
			return 0, err
		}
	}
	for i := range step.Events {
		owed, isNew, err := s.enqueue(b, s.log.NewEvent(&step.Events[i].EncodedEvent), step.Events[i].WebhookID)
		if err != nil {
			return 0, err
		}
		if isNew {
			deliveries += owed
		}
	}
	if b.alerts == nil {
		b.alerts = make(map[string][]byte)
	}
	b.alerts[string(row)] = next.State
	b.AfterCommit(func() { s.alerts.Set(row, next) })
	return deliveries, nil
}

// stateOf returns the alert's current state, including deferred changes and changes by earlier
// steps of the batch. file is the alert as stored in the file.
func (s *engine) stateOf(b *batch, row []byte, file alertcache.Alert) []byte {
	if state, known := b.alerts[string(row)]; known {
		return state
	}
	return s.alerts.Latest(row, file)
}

// readableWebhooks returns copies of the account's webhooks. It omits unreadable webhooks.
func (s *engine) readableWebhooks(b *batch, account string) []driver.Webhook {
	var list []driver.Webhook
	for _, w := range s.webhookRows.ofAccount(b.Tx, account).list {
		if w.err == nil {
			webhook := w.Webhook
			fields.Copy((*listed.Webhook)(&webhook))
			list = append(list, webhook)
		}
	}
	return list
}

// markDue marks all alert series of the account as due. The file has a row for every series,
// because the first state of a series is never deferred.
func (s *engine) markDue(b *batch, account string) error {
	for _, row := range rows.AllKeys(b.tx.Bucket(schema.Alerts), record.Prefixed(account, "")) {
		b.AfterCommit(func() { s.alerts.MarkDue(row) })
		if err := b.Put(schema.DueAlerts, row, record.Empty()); err != nil {
			return err
		}
	}
	return nil
}

// DueAlerts implements [driver.AlertStore].
func (s *engine) DueAlerts(ctx context.Context, limit int) (due []driver.AlertSeries, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	c := tx.Bucket(schema.DueAlerts).Cursor()
	for k, _ := c.First(); k != nil && len(due) < limit; k, _ = c.Next() {
		account, series := record.CutPrefixed(k)
		due = append(due, driver.AlertSeries{Account: account, Name: series})
	}
	return due, nil
}

// keepAlerts writes all deferred alerts. From then on, alerts are no longer deferred.
func (s *engine) keepAlerts() error {
	rows := s.alerts.Close()
	if len(rows) == 0 {
		return nil
	}
	defer s.alerts.Forget()
	return s.writeDeferred(context.Background(), rows)
}

// flushStep is the maximum number of alerts that flushAlerts writes per transaction.
const flushStep = 64

// flushAlerts writes the currently deferred alerts. After each transaction, it pauses for as long
// as that transaction took, because a transaction blocks publishers.
func (s *engine) flushAlerts(ctx context.Context) error {
	rows := s.alerts.Deferred()
	slices.Sort(rows) // so that rows of the same page are written together
	for step := range slices.Chunk(rows, flushStep) {
		began := time.Now()
		if err := s.writeDeferred(ctx, step); err != nil {
			return err
		}
		select {
		case <-time.After(time.Since(began)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// writeDeferred writes the deferred alerts of the given rows.
func (s *engine) writeDeferred(ctx context.Context, rows []string) error {
	for _, row := range rows {
		defer s.alerts.Writing([]byte(row))()
	}
	return s.writer.Run(ctx, func(b *batch) error {
		for _, row := range rows {
			row := []byte(row)
			a := readAlert(b.tx, row)
			state := s.stateOf(b, row, a)
			if bytes.Equal(state, a.State) {
				continue // another transaction has already written the alert
			}
			next := alertcache.Alert{Stored: record.EncodeAlert(state), State: state, Due: a.Due}
			if err := b.Put(schema.Alerts, row, next.Stored); err != nil {
				return err
			}
			b.AfterCommit(func() { s.alerts.Set(row, next) })
		}
		return nil
	})
}

// UpdateScan implements [driver.AlertStore]. It stores the state in the bucket meta.
func (s *engine) UpdateScan(ctx context.Context, change func([]byte) ([]byte, error)) error {
	return s.writer.Run(ctx, func(b *batch) error {
		before := bytes.Clone(b.Get(schema.Meta, schema.MetaScan))
		state, err := change(bytes.Clone(before))
		if err != nil || bytes.Equal(state, before) {
			return err
		}
		return b.PutOrDelete(schema.Meta, schema.MetaScan, bytes.Clone(state))
	})
}
