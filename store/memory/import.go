package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/transfer"
)

// forgotten identifies an event whose ID was purged. It includes the publication time, because a
// later event may have the same ID.
type forgotten struct {
	ref
	published int64 // Unix time in milliseconds
}

func forgottenOf(account, id string, published time.Time) forgotten {
	return forgotten{ref{account, id}, published.UnixMilli()}
}

// Import implements [transfer.Store].
func (s *Store) Import(ctx context.Context, records []transfer.Record) error {
	if err := transfer.Check(records); err != nil {
		return err
	}
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	fits := conflicts{store: s, hashes: make(map[driver.Hash]ref), owners: make(map[string]string), open: make(map[string]string)}
	for _, r := range records {
		if err := fits.check(r); err != nil {
			return err
		}
	}
	for _, r := range records {
		s.add(r)
	}
	return nil
}

// conflicts finds records that cannot be imported. All records are checked before any is added.
type conflicts struct {
	store  *Store
	hashes map[driver.Hash]ref
	owners map[string]string // accounts by the IDs of webhooks and recoveries
	open   map[string]string // unfinished recoveries by webhook
}

func (c *conflicts) check(r transfer.Record) error {
	switch r := r.(type) {
	case *transfer.Key:
		return c.checkKey(r)
	case *transfer.Webhook:
		if owner, inUse := c.ownerOf(r.ID); inUse && owner != r.Account {
			return fmt.Errorf("webhook %q of account %q: its ID %w", r.ID, r.Account, transfer.ErrConflict)
		}
		c.owners[r.ID] = r.Account
	case *transfer.Event:
		for i := range r.Deliveries {
			d := &r.Deliveries[i]
			if owner, _ := c.ownerOf(d.WebhookID); d.State == driver.Pending && owner != r.Account {
				return fmt.Errorf("event %q of account %q: %w: pending for unknown webhook %q", r.ID, r.Account, transfer.ErrRecord, d.WebhookID)
			}
		}
	case *transfer.Recovery:
		return c.checkRecovery(r)
	}
	return nil
}

func (c *conflicts) checkKey(r *transfer.Key) error {
	name := ref{r.Account, r.ID}
	if c.store.keys.find(r.Account, r.ID) != nil {
		return nil
	}
	for _, hash := range []driver.Hash{r.Hash, r.Previous} {
		owner, inUse := c.hashes[hash]
		if c.store.byHash[hash] != nil || inUse && owner != name {
			return fmt.Errorf("key %q of account %q: one of its hashes %w", r.ID, r.Account, transfer.ErrConflict)
		}
		if !hash.IsZero() {
			c.hashes[hash] = name
		}
	}
	return nil
}

// ownerOf returns the account of the webhook with this ID, and whether there is one.
func (c *conflicts) ownerOf(webhook string) (account string, there bool) {
	if account, there = c.owners[webhook]; there || !c.store.webhookIDs[webhook] {
		return account, there
	}
	for account := range c.store.webhooks {
		if c.store.webhooks.find(account, webhook) != nil {
			return account, true
		}
	}
	return "", false
}

func (c *conflicts) checkRecovery(r *transfer.Recovery) error {
	if c.open[r.WebhookID] == r.ID {
		return nil
	}
	for _, other := range c.store.recoveries {
		switch {
		case other.ID == r.ID && other.Account == r.Account:
			return nil
		case other.ID == r.ID, !r.Done && !other.Done && other.WebhookID == r.WebhookID:
			return fmt.Errorf("recovery %q of account %q: %w: its ID is taken, or its webhook has another unfinished recovery", r.ID, r.Account, transfer.ErrConflict)
		}
	}
	if !r.Done {
		if c.open[r.WebhookID] != "" {
			return fmt.Errorf("recovery %q of account %q: %w: its webhook has another unfinished recovery", r.ID, r.Account, transfer.ErrConflict)
		}
		c.open[r.WebhookID] = r.ID
	}
	return nil
}

// add adds a record unless it already exists.
func (s *Store) add(r transfer.Record) {
	switch r := r.(type) {
	case *transfer.Key:
		if s.keys.find(r.Account, r.ID) == nil {
			k := &key{copyOfKey(r.Key), stored(r.UsedAt)}
			s.keys.insert(k.Account, k.ID, k)
			s.index(k)
		}
	case *transfer.Webhook:
		if s.webhooks.find(r.Account, r.ID) == nil {
			w := copyOf(r.Webhook)
			w.Version = 1
			s.webhooks.insert(w.Account, w.ID, &w)
			s.webhookIDs[w.ID] = true
		}
	case *transfer.Request:
		to, name := s.keyRequests, ref{r.Account, r.IdempotencyKey}
		if r.Webhook {
			to = s.webhookRequests
		}
		if _, known := to[name]; !known {
			to[name] = request{r.Made, stored(transfer.NoLater(r.At, time.Now())), r.KeyID}
		}
	case *transfer.Alert:
		if name := (ref{r.Account, r.Series}); s.alerts[name] == nil {
			s.alerts[name] = &alert{bytes.Clone(r.State), r.Due}
		}
	case *transfer.DedupKey:
		s.dedupKeys[dedupKey{r.Account, r.Key, r.Until.UnixMilli()}] = true
	case *transfer.Scan:
		if len(s.scanState) == 0 {
			s.scanState = bytes.Clone(r.State)
		}
	case *transfer.Event:
		s.addEvent(r)
	case *transfer.Recovery:
		s.addRecovery(r)
	case *transfer.AuditEntry:
		s.entries.addAt(r.Entry, stored(r.StoredAt))
	}
}

func (s *Store) addEvent(r *transfer.Event) {
	name, published := ref{r.Account, r.ID}, stored(transfer.NoLater(r.PublishedAt, time.Now()))
	old := forgottenOf(r.Account, r.ID, published)
	if known := s.events[name]; s.forgotten[old] || known != nil && (!r.Forgotten || known.published.Equal(published)) {
		return
	}
	s.lastSeq++
	e := &event{EncodedEvent: r.EncodedEvent, seq: s.lastSeq, published: published, matched: r.Matched, noBody: r.NoBody}
	e.Timestamp = stored(e.Timestamp)
	if s.log = append(s.log, e); r.Forgotten {
		s.forgotten[old] = true
	} else {
		s.events[name] = e
	}
	if published.After(s.published) {
		s.published = published
	}
	for i := range r.Deliveries {
		s.addDelivery(e, &r.Deliveries[i])
	}
}

func (s *Store) addDelivery(e *event, from *transfer.Delivery) {
	d := &delivery{event: e, settled: from.Settled, before: from.Before, recovered: from.Recovered, first: from.First}
	d.Delivery = driver.Delivery{
		EventID: e.ID, WebhookID: from.WebhookID, Type: e.Type, Resource: e.Resource, PublishedAt: e.published,
		State: from.State, Attempts: slices.Clone(from.Attempts),
	}
	for i := range d.Attempts {
		d.Attempts[i].StartedAt = stored(d.Attempts[i].StartedAt)
	}
	e.deliveries = append(e.deliveries, d)
	s.deliveries[d.ref()] = d
	if d.State != driver.Pending {
		return
	}
	now := time.Now()
	if d.makeDue(now.Add(from.Wait)); from.AsPublished {
		d.due, d.NextAttemptAt = now.Add(min(e.published.Sub(now), 0)), e.published
	}
	s.added(s.report(d))
}

func (s *Store) addRecovery(r *transfer.Recovery) {
	if slices.ContainsFunc(s.recoveries, func(other *recovery) bool { return other.ID == r.ID }) {
		return
	}
	added := &recovery{Recovery: r.Recovery, next: s.lastSeq + 1}
	added.States = slices.Clone(r.States)
	added.From, added.To, added.CreatedAt = stored(r.From), stored(r.To), stored(r.CreatedAt)
	if r.NextEventID != "" {
		added.next = 0
		if e := s.events[ref{r.Account, r.NextEventID}]; e != nil {
			added.next = e.seq
		}
	}
	s.recoveries = append(s.recoveries, added)
}
