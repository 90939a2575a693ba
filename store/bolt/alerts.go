package bolt

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/store"
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
	if answered, err := s.answer(account, row, change); answered || err != nil {
		return 0, err
	}
	defer s.alerts.write(row)()
	err = s.writer.Run(ctx, func(b *batch) error {
		deliveries, err = s.updateAlert(b, row, account, change)
		return err
	})
	return deliveries, err
}

// answer applies a change that needs no transaction. If the change needs one, answer has no effect
// and returns false.
func (s *engine) answer(account string, row []byte, change func(*driver.AlertStep) error) (answered bool, err error) {
	s.alerts.mu.Lock()
	defer s.alerts.mu.Unlock()
	if s.alerts.closed {
		return false, store.ErrClosed
	}
	if s.erasing.has(account) {
		return false, auth.ErrErasing
	}
	a, known := s.alerts.known[string(row)]
	if !known {
		if a, err = s.readAlert(row); err != nil {
			return false, err
		}
		s.alerts.put(row, a)
	}
	if a.due {
		return false, nil
	}
	looked := false
	step := driver.AlertStep{State: a.state, Webhooks: func() []driver.Webhook { looked = true; return nil }}
	err = change(&step)
	switch {
	case looked || len(step.Events) > 0:
		return false, nil
	case err != nil:
		return false, err
	case bytes.Equal(step.State, a.state):
		return true, nil
	case !step.Deferrable || a.stored == nil || s.alerts.writing[string(row)] > 0 || s.writer.Halted() != nil:
		return false, nil
	}
	a.state, a.deferred = bytes.Clone(step.State), true
	return s.alerts.put(row, a), nil
}

// readAlert reads an alert from the file in a new transaction.
func (s *engine) readAlert(row []byte) (a alert, err error) {
	tx, err := s.view(context.Background())
	if err != nil {
		return a, err
	}
	defer s.done(tx, catchFaults(), &err)
	return readAlert(tx, row), nil
}

// readAlert reads an alert. It treats an unreadable alert as missing, so that the next step
// replaces it.
func readAlert(tx *bbolt.Tx, row []byte) alert {
	a := alert{
		stored: bytes.Clone(tx.Bucket(schema.Alerts).Get(row)),
		due:    tx.Bucket(schema.DueAlerts).Get(row) != nil,
	}
	a.state = record.DecodeAlert(a.stored)
	return a
}

// updateAlert is the body of UpdateAlert's transaction.
func (s *engine) updateAlert(b *batch, row []byte, account string, change func(*driver.AlertStep) error) (deliveries int, err error) {
	if b.isErasing(account) {
		return 0, auth.ErrErasing
	}
	a := readAlert(b.tx, row)
	step := driver.AlertStep{State: s.stateOf(b, row, a), Due: a.due, Webhooks: func() []driver.Webhook { return s.readableWebhooks(b, account) }}
	if err := change(&step); err != nil {
		return 0, err
	}
	next := alert{state: bytes.Clone(step.State)}
	if len(next.state) > 0 {
		next.stored = record.EncodeAlert(next.state)
	}
	if !bytes.Equal(next.stored, a.stored) {
		if err := b.PutOrDelete(schema.Alerts, row, next.stored); err != nil {
			return 0, err
		}
	}
	if a.due {
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
	b.alerts[string(row)] = next.state
	b.AfterCommit(func() { s.alerts.set(row, next) })
	return deliveries, nil
}

// stateOf returns the alert's state as the steps of the batch see it: including deferred changes
// and changes by earlier steps of the batch. file is the alert as stored.
func (s *engine) stateOf(b *batch, row []byte, file alert) []byte {
	if state, known := b.alerts[string(row)]; known {
		return state
	}
	return s.alerts.latest(row, file)
}

// readableWebhooks returns copies of the account's webhooks, without unreadable ones.
func (s *engine) readableWebhooks(b *batch, account string) []driver.Webhook {
	var list []driver.Webhook
	for _, w := range s.accountWebhooks(b, account).list {
		if w.err == nil {
			webhook := w.Webhook
			fields.Copy((*listed.Webhook)(&webhook))
			list = append(list, webhook)
		}
	}
	return list
}

// markDue marks all alert series of the account as due. It finds them in the file: a deferred
// series is there too, because the first state of a series is never deferred.
func (s *engine) markDue(b *batch, account string) error {
	for _, row := range rows.AllKeys(b.tx.Bucket(schema.Alerts), record.Prefixed(account, "")) {
		b.AfterCommit(func() { s.alerts.markDue(row) })
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

// keepAlerts writes all deferred alerts. From then on no alert can be deferred.
func (s *engine) keepAlerts() error {
	s.alerts.mu.Lock()
	s.alerts.closed = true
	s.alerts.mu.Unlock()
	rows := s.alerts.deferredRows()
	if len(rows) == 0 {
		return nil
	}
	defer s.alerts.forget()
	return s.writeDeferred(context.Background(), rows)
}

// flushStep is the maximum number of alerts that flushAlerts writes per transaction.
const flushStep = 64

// flushAlerts writes the alerts that are deferred now. After each transaction, it pauses for as
// long as the transaction took, because publishers wait while it runs.
func (s *engine) flushAlerts(ctx context.Context) error {
	rows := s.alerts.deferredRows()
	slices.Sort(rows) // writes rows of the same page together
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

// writeDeferred writes the deferred alerts with these rows.
func (s *engine) writeDeferred(ctx context.Context, rows []string) error {
	for _, row := range rows {
		defer s.alerts.write([]byte(row))()
	}
	return s.writer.Run(ctx, func(b *batch) error {
		for _, row := range rows {
			row := []byte(row)
			a := readAlert(b.tx, row)
			state := s.stateOf(b, row, a)
			if bytes.Equal(state, a.state) {
				continue // a later step has written the alert
			}
			next := alert{stored: record.EncodeAlert(state), state: state, due: a.due}
			if err := b.Put(schema.Alerts, row, next.stored); err != nil {
				return err
			}
			b.AfterCommit(func() { s.alerts.set(row, next) })
		}
		return nil
	})
}

// maxAlerts bounds the number of alerts in memory, some 300 bytes each. At most half of them may
// be deferred; beyond that, changes are written at once.
const maxAlerts = 131_072

// An alertCache caches alerts, so that a report that changes nothing needs no transaction. It also
// holds deferred alerts: changes that are not written to the file yet.
type alertCache struct {
	mu       sync.Mutex
	known    map[string]alert // by row
	writing  map[string]int   // transactions about to write the row, which bars deferral
	deferred int              // number of deferred alerts
	closed   bool
}

// An alert is an alert in the cache.
type alert struct {
	stored   []byte // the record in the file; nil if there is none
	state    []byte // current state; decoded from stored unless the alert is deferred
	due      bool
	deferred bool
}

// write announces that a transaction will write the row. The caller must call the returned
// function when the transaction has ended.
func (s *alertCache) write(row []byte) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writing == nil {
		s.writing = make(map[string]int)
	}
	s.writing[string(row)]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.writing[string(row)]--; s.writing[string(row)] == 0 {
			delete(s.writing, string(row))
		}
	}
}

// latest returns the current state of the alert: the deferred state if there is one, otherwise the
// stored state. file is the alert as stored.
func (s *alertCache) latest(row []byte, file alert) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.known[string(row)]; a.deferred && bytes.Equal(a.stored, file.stored) {
		return a.state
	}
	return file.state
}

// set caches an alert that has been written to the file.
func (s *alertCache) set(row []byte, a alert) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(row, a)
}

// deferredRows returns the keys of the deferred alerts.
func (s *alertCache) deferredRows() (rows []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deferred == 0 {
		return nil
	}
	for row, a := range s.known {
		if a.deferred {
			rows = append(rows, row)
		}
	}
	return rows
}

// markDue marks a cached alert as due.
func (s *alertCache) markDue(row []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, known := s.known[string(row)]; known {
		a.due = true
		s.known[string(row)] = a
	}
}

// put caches an alert, and evicts another if the cache is full. Deferred alerts are never evicted.
// If the alert is deferred and too many others already are, put does nothing and returns false.
func (s *alertCache) put(row []byte, a alert) (done bool) {
	old, known := s.known[string(row)]
	switch {
	case a.deferred && !old.deferred && s.deferred >= maxAlerts/2:
		return false
	case a.deferred && !old.deferred:
		s.deferred++
	case !a.deferred && old.deferred:
		s.deferred--
	}
	if s.known == nil {
		s.known = make(map[string]alert)
	}
	if !known && len(s.known) >= maxAlerts {
		s.evict()
	}
	s.known[string(row)] = a
	return true
}

// evict removes an arbitrary alert that is not deferred.
func (s *alertCache) evict() {
	for row, a := range s.known {
		if !a.deferred {
			delete(s.known, row)
			return
		}
	}
}

// forget empties the cache.
func (s *alertCache) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.deferred = nil, 0
}

// forgetAccount removes the account's alerts from the cache, including deferred ones.
func (s *alertCache) forgetAccount(account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	prefix := string(record.Prefixed(account, ""))
	for row, a := range s.known {
		if !strings.HasPrefix(row, prefix) {
			continue
		}
		if a.deferred {
			s.deferred--
		}
		delete(s.known, row)
	}
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
