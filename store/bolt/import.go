package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/bolt/internal/alertcache"
	"github.com/storageapi/storageapi/store/bolt/internal/auditlog"
	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/requests"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

// Import implements [transfer.Store]. Events are purged in the order in which they were stored. So
// even if an imported event is older than events stored before it, it is purged after them.
func (s *engine) Import(ctx context.Context, records []transfer.Record) error {
	if err := transfer.Check(records); err != nil {
		return err
	}
	for {
		err := s.writer.Run(ctx, func(b *batch) error { return s.importAll(b, records) })
		if err != errLeftovers {
			return err
		}
		if err := s.sweepAll(ctx); err != nil {
			return err
		}
	}
}

// An importer imports records in one step. It checks all records before it writes any of them.
type importer struct {
	*batch
	store    *engine
	missing  []transfer.Record // records that the file does not have
	keys     map[string]bool   // seen so far, by row
	hashes   map[driver.Hash]bool
	webhooks map[string]string // account by ID
	open     map[string]bool   // webhooks with an unfinished recovery
	once     map[string]bool   // other records seen so far, by kind and identity
	told     auditlog.Known

	events  *eventlog.Import
	pending []driver.PendingDelivery // deliveries to report after the commit
}

func (s *engine) newImporter(b *batch) *importer {
	m := &importer{
		batch: b, store: s, told: make(auditlog.Known), keys: make(map[string]bool), hashes: make(map[driver.Hash]bool),
		webhooks: make(map[string]string), open: make(map[string]bool), once: make(map[string]bool),
	}
	m.events = b.log.Import(m.found)
	return m
}

func (s *engine) importAll(b *batch, records []transfer.Record) error {
	if err := b.Flush(); err != nil {
		return err
	}
	m := s.newImporter(b)
	for _, r := range records {
		if b.isErasing(r.Owner()) {
			return auth.ErrErasing
		}
		isNew, err := m.look(r)
		if err != nil {
			return err
		}
		if isNew {
			m.missing = append(m.missing, r)
		}
	}
	for _, r := range m.missing {
		if err := m.add(r); err != nil {
			return err
		}
	}
	return m.events.End()
}

// look reports whether a record is new. It returns an error if the record cannot be imported.
func (m *importer) look(r transfer.Record) (isNew bool, err error) {
	switch r := r.(type) {
	case *transfer.Key:
		return m.lookKey(r)
	case *transfer.Webhook:
		return m.lookWebhook(r)
	case *transfer.Request:
		key := requests.Row(requestKind(r), r.Account, r.IdempotencyKey)
		return m.first(r, key) && m.Get(schema.Requests, key) == nil, nil
	case *transfer.Alert:
		row := record.Prefixed(r.Account, r.Series)
		there := m.Get(schema.Alerts, row) != nil || len(m.store.stateOf(m.batch, row, alertcache.Alert{})) > 0
		return m.first(r, row) && !there, nil
	case *transfer.DedupKey:
		row := dedupKeyOf(r.Account, &r.DedupKey)
		return m.first(r, row) && m.Get(schema.DedupKeys, row) == nil, nil
	case *transfer.Scan:
		return m.first(r, nil) && m.Get(schema.Meta, schema.MetaScan) == nil, nil
	case *transfer.Event:
		return m.lookEvent(r)
	case *transfer.Recovery:
		return m.lookRecovery(r)
	case *transfer.AuditEntry:
		return true, nil // addAuditEntry checks whether it is new
	}
	return false, fmt.Errorf("%w: unknown kind %q", transfer.ErrRecord, r.Kind())
}

// first reports whether the importer has seen no other record of this kind and identity.
func (m *importer) first(r transfer.Record, known []byte) bool {
	name := string(r.Kind()) + "\x00" + string(known)
	first := !m.once[name]
	m.once[name] = true
	return first
}

func (m *importer) lookKey(r *transfer.Key) (isNew bool, err error) {
	row := record.AccountKey(r.Account, r.ID)
	if m.Get(schema.Accounts, row) != nil || m.keys[string(row)] {
		return false, nil
	}
	m.keys[string(row)] = true
	taken := hashTaken(m.batch, &r.Key, &driver.Key{}) || m.hashes[r.Hash] || !r.Previous.IsZero() && m.hashes[r.Previous]
	if taken {
		return false, fmt.Errorf("key %q of account %q: one of its hashes %w", r.ID, r.Account, transfer.ErrConflict)
	}
	m.hashes[r.Hash], m.hashes[r.Previous] = true, true
	return true, nil
}

// ownerOf returns the account of a webhook, or an empty string if the webhook does not exist.
func (m *importer) ownerOf(webhook string) string {
	if account, found := m.webhooks[webhook]; found {
		return account
	}
	return string(m.Get(schema.WebhookIDs, []byte(webhook)))
}

func (m *importer) lookWebhook(r *transfer.Webhook) (isNew bool, err error) {
	switch owner := m.ownerOf(r.ID); {
	case owner == r.Account:
		return false, nil
	case owner != "":
		return false, fmt.Errorf("webhook %q of account %q: its ID %w", r.ID, r.Account, transfer.ErrConflict)
	case m.hasLeftovers(r.ID):
		return false, errLeftovers
	}
	m.webhooks[r.ID] = r.Account
	return true, nil
}

// lookEvent reports whether an event is new.
func (m *importer) lookEvent(r *transfer.Event) (isNew bool, err error) {
	for i := range r.Deliveries {
		if d := &r.Deliveries[i]; d.State == driver.Pending && m.ownerOf(d.WebhookID) != r.Account {
			return false, fmt.Errorf("event %q of account %q: %w: pending for unknown webhook %q", r.ID, r.Account, transfer.ErrRecord, d.WebhookID)
		}
	}
	at := eventlog.PublishedAt(r)
	name := record.Prefixed(r.Account, r.ID)
	if r.Forgotten {
		name = append(name, at.String()...)
	}
	if !m.first(r, name) {
		return false, nil
	}
	there, err := m.events.Has(r, at)
	return !there, err
}

// found records a pending delivery of an imported event, to be reported after the commit.
func (m *importer) found(webhook string, d driver.PendingDelivery) error {
	w := m.store.webhookRows.inStep(m.Tx, webhook)
	if w == nil {
		return record.ErrCorrupt
	}
	if len(m.pending) == 0 {
		m.AfterCommit(func() {
			m.store.feed.Report(func(to driver.Scheduler) { to.Add(m.pending) })
		})
	}
	d.Webhook = &w.Webhook
	m.pending = append(m.pending, d)
	return nil
}

func (m *importer) lookRecovery(r *transfer.Recovery) (isNew bool, err error) {
	if value := m.Get(schema.Recoveries, []byte(r.ID)); value != nil {
		if there, err := record.DecodeRecovery(r.ID, value); err != nil || there.Account != r.Account {
			return false, fmt.Errorf("recovery %q of account %q: its ID %w", r.ID, r.Account, transfer.ErrConflict)
		}
		return false, nil
	}
	if !m.first(r, []byte(r.ID)) {
		return false, nil
	}
	if !r.Done {
		if m.open[r.WebhookID] || m.Get(schema.OpenRecoveries, []byte(r.WebhookID)) != nil {
			return false, fmt.Errorf("recovery %q of account %q: %w: its webhook has another unfinished recovery", r.ID, r.Account, transfer.ErrConflict)
		}
		m.open[r.WebhookID] = true
	}
	return true, nil
}

// add writes a new record.
func (m *importer) add(r transfer.Record) error {
	s := m.store
	switch r := r.(type) {
	case *transfer.Key:
		s.keyCounts.add(m.Tx, r.Account, 1)
		if err := putKey(m.batch, r.Key, driver.Key{}); err != nil {
			return err
		}
		used := record.Uses{Any: record.Round(r.LastUsedAt), Current: record.Round(r.UsedAt), Previous: record.Round(r.PreviousUsedAt), Activity: r.Activity}
		return putUses(m.batch, record.AccountKey(r.Account, r.ID), used, record.Uses{})
	case *transfer.Webhook:
		if err := m.Put(schema.WebhookIDs, []byte(r.ID), []byte(r.Account)); err != nil {
			return err
		}
		return s.putWebhook(m.batch, &r.Webhook)
	case *transfer.Request:
		return m.addRequest(r)
	case *transfer.Alert:
		return m.addAlert(r)
	case *transfer.DedupKey:
		return m.Put(schema.DedupKeys, dedupKeyOf(r.Account, &r.DedupKey), record.Empty())
	case *transfer.Scan:
		return m.Put(schema.Meta, schema.MetaScan, bytes.Clone(r.State))
	case *transfer.Event:
		return m.events.Add(r)
	case *transfer.Recovery:
		return m.addRecovery(r)
	case *transfer.AuditEntry:
		_, err := m.addAuditEntry(&r.Entry, r.StoredAt, m.told)
		return err
	}
	return nil
}

func requestKind(r *transfer.Request) requests.Kind {
	if r.Webhook {
		return requests.Webhook
	}
	return requests.Key
}

func (m *importer) addRequest(r *transfer.Request) error {
	made := record.Request{ID: r.Made.ID, Fingerprint: r.Made.Fingerprint, At: record.Round(transfer.NoLater(r.At, time.Now())), KeyID: r.KeyID}
	return m.store.requests.Put(m.Tx, requestKind(r), r.Account, r.IdempotencyKey, &made)
}

func (m *importer) addAlert(r *transfer.Alert) error {
	row := record.Prefixed(r.Account, r.Series)
	added := alertcache.Alert{Stored: record.EncodeAlert(r.State), State: bytes.Clone(r.State), Due: r.Due}
	if err := m.Put(schema.Alerts, row, added.Stored); err != nil {
		return err
	}
	if r.Due {
		if err := m.Put(schema.DueAlerts, row, record.Empty()); err != nil {
			return err
		}
	}
	if m.alerts == nil {
		m.alerts = make(map[string][]byte)
	}
	m.alerts[string(row)] = added.State
	m.AfterCommit(func() { m.store.alerts.Set(row, added) })
	return nil
}

// addRecovery writes a recovery. The recovery continues at the event NextEventID, or after all
// events if NextEventID is empty.
func (m *importer) addRecovery(r *transfer.Recovery) error {
	if err := m.events.End(); err != nil {
		return err
	}
	added := record.Recovery{Recovery: r.Recovery, Next: m.tx.Bucket(schema.Events).Sequence() + 1}
	if r.NextEventID != "" {
		added.Next = 0
		event, err := m.log.Event(r.Account, r.NextEventID)
		switch {
		case err == nil:
			added.Next = event.Number()
		case !errors.Is(err, apierr.ErrNotFound):
			return err
		}
	}
	if r.Done { // the webhook may have another, unfinished recovery
		return putRecoveryRow(m.batch, &added)
	}
	return putRecovery(m.batch, &added)
}
