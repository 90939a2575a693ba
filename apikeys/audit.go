package apikeys

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/internal/listed"
)

// entry returns a new audit entry for an action on a key, with the key's current name. Each call
// returns a higher ID than the previous one, so where the order matters, call entry within the
// store's transaction.
func (s *KeyService) entry(ctx context.Context, action audit.Action, key *Key) audit.Entry {
	n := audit.Of(ctx, key.Account, action, audit.Target{Kind: audit.TargetKey, ID: key.ID, Name: key.Name, Hint: key.Hint})
	n.At = s.now().UTC().Truncate(time.Millisecond)
	n.ID = s.entryIDs.New(id.AuditEntry, n.At)
	n.Pending = s.notify
	return n
}

// changeAuditEntry returns the audit entry for a change to a key, or the zero Entry if nothing
// changed.
func (s *KeyService) changeAuditEntry(ctx context.Context, before, after *Key) audit.Entry {
	if before.Hash != after.Hash {
		n := s.entry(ctx, audit.KeyRotated, before)
		n.Until = after.PreviousExpiresAt
		return n
	}
	changed := fields.Changed((*listed.Key)(before), (*listed.Key)(after))
	if before.Previous != after.Previous {
		changed = append(changed, "previous")
	}
	if len(changed) == 0 {
		return audit.Entry{}
	}
	n := s.entry(ctx, audit.KeyChanged, before)
	n.Changed = changed
	if i := slices.Index(changed, "disabled"); i >= 0 {
		changed[i], n.Turned = "enabled", "on"
		if after.Disabled {
			n.Turned = "off"
		}
	}
	return n
}

// ExpiryLeads returns how long before a key's expiry each [audit.KeyExpiring] entry is stored.
func ExpiryLeads() []time.Duration { return []time.Duration{14 * day, 3 * day} }

const day = 24 * time.Hour

// AddExpiring stores an [audit.KeyExpiring] entry for each key, in any account, that expires within
// one of the [ExpiryLeads]. The function add, a store's AddAuditEntries, receives the entries. The
// entry is for the shortest lead that has begun; a key created after that lead began gets none. The
// entry's ID is derived from key, expiry and lead, so repeated calls store each entry only once.
// storageapi.Handler.Run calls AddExpiring every hour if Config.Notify is set; with
// [Config.MaxLifetime] this reads all keys, as [KeyService.AllExpiring] does. After an error some
// entries may be stored; call it again.
func (s *KeyService) AddExpiring(ctx context.Context, add func(context.Context, []audit.Entry) (int, error)) error {
	now := s.now()
	to := now.Add(slices.Max(ExpiryLeads()) + time.Millisecond)
	var batch []audit.Entry
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		if _, err := add(ctx, batch); err != nil {
			return fmt.Errorf("add audit entries for expiring API keys: %w", err)
		}
		batch = batch[:0]
		return nil
	}
	announce := func(key *Key, reason string) error {
		n := s.expiring(key, now)
		if n.IsZero() {
			return nil
		}
		n.Reason = reason
		if batch = append(batch, n); len(batch) < pageSize {
			return nil
		}
		return flush()
	}
	overlong, err := s.overlong(ctx, now, to)
	if err != nil {
		return err
	}
	for i := range overlong {
		if err := announce(&overlong[i], audit.ReasonLifetime); err != nil {
			return err
		}
	}
	for key, err := range s.listedExpiring(ctx, now, to) {
		if err != nil {
			return err
		}
		if err := announce(&key, ""); err != nil {
			return err
		}
	}
	return flush()
}

// expiring returns the audit entry for a key that expires soon, or else the zero Entry.
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
