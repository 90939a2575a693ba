package apikeys

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/notices"
)

// notice returns the notice of an action at a key, as that is called then. Its ID is made when it is
// called: where the order matters, within the store's step.
func (s *KeyService) notice(ctx context.Context, action notices.Action, key *Key) notices.Notice {
	n := notices.Of(ctx, key.Account, action, notices.Target{Kind: notices.TargetKey, ID: key.ID, Name: key.Name, Hint: key.Hint})
	n.At = s.now().UTC().Truncate(time.Millisecond)
	n.ID = s.noticeIDs.New(id.Notice, n.At)
	n.Pending = s.notify
	return n
}

// changeNotice returns the notice of a change of a key, or the zero Notice if it is as it was.
func (s *KeyService) changeNotice(ctx context.Context, before, after *Key) notices.Notice {
	if before.Hash != after.Hash {
		n := s.notice(ctx, notices.KeyRotated, before)
		n.Until = after.PreviousExpiresAt
		return n
	}
	changed := before.changed(after)
	if len(changed) == 0 {
		return notices.Notice{}
	}
	n := s.notice(ctx, notices.KeyChanged, before)
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

// AddExpiring has add store the notices of the keys, of all accounts, that expire within
// [ExpiryLeads] and are not told of yet: of each key the one for the least lead that has
// begun, and only if the key was there before that. Their ids follow from key, expiry and
// lead, so that add, which is a store's AddNotices, stores each once, and a key whose expiry
// is moved is told of again. storageapi.Handler.Run calls it every hour where there is a
// Config.Notify. If it fails, some are stored: call it again.
func (s *KeyService) AddExpiring(ctx context.Context, add func(context.Context, []notices.Notice) (int, error)) error {
	now := s.now()
	var batch []notices.Notice
	for key, err := range s.AllExpiring(ctx, now.Add(slices.Max(ExpiryLeads())+time.Millisecond)) {
		if err != nil {
			return err
		}
		if n := s.expiring(&key, now); !n.IsZero() {
			batch = append(batch, n)
		}
		if len(batch) == pageSize {
			if _, err := add(ctx, batch); err != nil {
				return fmt.Errorf("add notices of API keys that expire: %w", err)
			}
			batch = batch[:0]
		}
	}
	if len(batch) == 0 {
		return nil
	}
	if _, err := add(ctx, batch); err != nil {
		return fmt.Errorf("add notices of API keys that expire: %w", err)
	}
	return nil
}

// expiring returns the notice that there is of a key that is about to expire, or none.
func (s *KeyService) expiring(key *Key, now time.Time) notices.Notice {
	var lead time.Duration
	for _, l := range ExpiryLeads() {
		if !key.ExpiresAt.Add(-l).After(now) && (lead == 0 || l < lead) {
			lead = l
		}
	}
	begins := key.ExpiresAt.Add(-lead)
	if lead == 0 || !key.CreatedAt.Before(begins) {
		return notices.Notice{}
	}
	byService := notices.WithActor(context.Background(), notices.Actor{Kind: notices.ActorService})
	n := s.notice(byService, notices.KeyExpiring, key)
	sum := input.Fingerprint("expiring", key.Account, key.ID, key.ExpiresAt.UTC().Format(time.RFC3339Nano), lead.String())
	n.ID = id.Derived(id.Notice, begins, sum[:])
	n.Until = key.ExpiresAt
	return n
}
