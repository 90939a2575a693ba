package apikeys

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
)

// entry returns the audit entry of an action on a key, with the key's current name and hint. It
// makes the ID: where the order matters, call it within the store's step.
func (s *KeyService) entry(ctx context.Context, action audit.Action, key *Key) audit.Entry {
	n := audit.Of(ctx, key.Account, action, audit.Target{Kind: audit.TargetKey, ID: key.ID, Name: key.Name, Hint: key.Hint})
	n.At = s.now().UTC().Truncate(time.Millisecond)
	n.ID = s.entryIDs.New(id.AuditEntry, n.At)
	n.Pending = s.notify
	return n
}

// changeAuditEntry returns the audit entry of a change of a key, or the zero Entry if nothing
// changed.
func (s *KeyService) changeAuditEntry(ctx context.Context, before, after *Key) audit.Entry {
	if before.Hash != after.Hash {
		n := s.entry(ctx, audit.KeyRotated, before)
		n.Until = after.PreviousExpiresAt
		return n
	}
	changed := before.changed(after)
	if len(changed) == 0 {
		return audit.Entry{}
	}
	n := s.entry(ctx, audit.KeyChanged, before)
	n.Changed = changed
	return n
}

// changed returns the names of the fields that after has another value of.
func (k *Key) changed(after *Key) (fields []string) {
	if k.Name != after.Name {
		fields = append(fields, "name")
	}
	if k.Scopes != after.Scopes {
		fields = append(fields, "scopes")
	}
	if !k.ExpiresAt.Equal(after.ExpiresAt) {
		fields = append(fields, "expiresAt")
	}
	return fields
}

// ExpiryLeads are how long before its expiry a key is told of as KeyExpiring, once for each.
func ExpiryLeads() []time.Duration { return []time.Duration{14 * day, 3 * day} }

const day = 24 * time.Hour

// AddExpiring has add store the audit entries of the keys, of all accounts, that expire within
// [ExpiryLeads] and are not told of yet: of each key the one for the least lead that has
// begun, and only if the key was there before that. Their ids follow from key, expiry and
// lead, so that add, which is a store's AddAuditEntries, stores each once, and a key whose expiry
// is moved is told of again. storageapi.Handler.Run calls it every hour where there is a
// Config.Notify. If it fails, some are stored: call it again.
func (s *KeyService) AddExpiring(ctx context.Context, add func(context.Context, []audit.Entry) (int, error)) error {
	now := s.now()
	var batch []audit.Entry
	for key, err := range s.AllExpiring(ctx, now.Add(slices.Max(ExpiryLeads())+time.Millisecond)) {
		if err != nil {
			return err
		}
		if n := s.expiring(&key, now); !n.IsZero() {
			batch = append(batch, n)
		}
		if len(batch) == pageSize {
			if _, err := add(ctx, batch); err != nil {
				return fmt.Errorf("add audit entries of API keys that expire: %w", err)
			}
			batch = batch[:0]
		}
	}
	if len(batch) == 0 {
		return nil
	}
	if _, err := add(ctx, batch); err != nil {
		return fmt.Errorf("add audit entries of API keys that expire: %w", err)
	}
	return nil
}

// expiring returns the audit entry that there is of a key that is about to expire, or none.
func (s *KeyService) expiring(key *Key, now time.Time) audit.Entry {
	var lead time.Duration
	for _, l := range ExpiryLeads() {
		if !key.ExpiresAt.Add(-l).After(now) && (lead == 0 || l < lead) {
			lead = l
		}
	}
	begins := key.ExpiresAt.Add(-lead)
	if lead == 0 || !key.CreatedAt.Before(begins) {
		return audit.Entry{}
	}
	byService := audit.WithActor(context.Background(), audit.Actor{Kind: audit.ActorService})
	n := s.entry(byService, audit.KeyExpiring, key)
	sum := input.Fingerprint("expiring", key.Account, key.ID, key.ExpiresAt.UTC().Format(time.RFC3339Nano), lead.String())
	n.ID = id.Derived(id.AuditEntry, begins, sum[:])
	n.Until = key.ExpiresAt
	return n
}
