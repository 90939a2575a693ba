package apikeys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/input"
)

// UpdateParams are the changes to a key. Nil fields stay unchanged.
type UpdateParams struct {
	Name *string // as in CreateParams

	// Enabled disables or enables the key. All values of a disabled key are refused as if the key had
	// been deleted.
	Enabled *bool

	// ExpiresAt is as in CreateParams; the zero time means never, or as late as [Config.MaxLifetime]
	// allows. If it is before the end of a rotation's grace period, it also ends the grace period.
	ExpiresAt *time.Time

	// Labels are merged into the key's labels by name; nil removes a label. Limits are as in
	// CreateParams.
	Labels map[string]*string

	// If is as in CreateParams. See [Extends] for changes that require more authority than others.
	If Condition
}

// Update changes the account's key with the given ID and returns it, or [apierr.ErrNotFound].
// Concurrent updates are serialized, so none is lost.
func (s *KeyService) Update(ctx context.Context, account, keyID string, params UpdateParams) (Key, error) {
	var badName, badExpiry error
	if params.Name != nil {
		badName = checkName(*params.Name)
	}
	if params.ExpiresAt != nil {
		badExpiry = checkExpiry(*params.ExpiresAt, s.now())
	}
	if badName != nil || badExpiry != nil { // otherwise the labels are checked after params.If
		_, badLabels := mergeLabels("", params.Labels)
		return Key{}, input.JoinInvalid(badName, badExpiry, badLabels)
	}
	key, err := s.change(ctx, account, keyID, params.If, func(key *Key) (err error) {
		if params.Name != nil {
			key.Name = *params.Name
		}
		if params.Enabled != nil {
			key.Disabled = !*params.Enabled
		}
		if params.ExpiresAt != nil {
			at := params.ExpiresAt.UTC().Truncate(time.Millisecond)
			if key.ExpiresAt, err = s.lifetime.extended(key, at, s.now()); err != nil {
				return err
			}
			limitPrevious(key)
		}
		key.Labels, err = mergeLabels(key.Labels, params.Labels)
		return err
	})
	if err != nil {
		return Key{}, fmt.Errorf("update API key: %w", err)
	}
	return key, nil
}

// limitPrevious makes the key's previous value expire no later than the key.
func limitPrevious(key *Key) {
	if !key.ExpiresAt.IsZero() && key.ExpiresAt.Before(key.PreviousExpiresAt) {
		key.PreviousExpiresAt = key.ExpiresAt
	}
}

// RotateParams are the parameters of a rotation.
type RotateParams struct {
	// Grace is how long the previous token stays valid, to the millisecond. It must not be
	// negative. The token never outlives the key's own expiry. If the key is disabled, the token
	// ends at once.
	Grace time.Duration

	If Condition
}

// Rotate gives the account's key a new token and returns both, or [apierr.ErrNotFound]. The current
// token stays valid for the grace period. If an earlier rotation left a previous token, that token
// expires now, so a key has at most two. Scopes and expiry stay unchanged, and a disabled key stays
// disabled. A request verified concurrently sees the key either before or after the rotation.
func (s *KeyService) Rotate(ctx context.Context, account, keyID string, params RotateParams) (Key, Token, error) {
	if params.Grace < 0 {
		return Key{}, Token{}, input.Invalid("Grace", "must not be negative")
	}
	token := newToken(s.prefix)
	now := s.now().UTC()
	until := now.Add(params.Grace).Truncate(time.Millisecond)
	key, err := s.change(ctx, account, keyID, params.If, func(key *Key) error {
		key.ExpiresAt = s.lifetime.expiry(key) // otherwise the lifetime would extend it
		key.RotatedAt = now.Truncate(time.Millisecond)
		key.Previous, key.PreviousHint, key.PreviousExpiresAt = key.Hash, key.Hint, until
		limitPrevious(key)
		if key.Disabled { // perhaps because the value leaked, so enabling the key must not revive it
			dropPrevious(key)
		}
		key.Hash, key.Hint = token.Hash(), token.Hint()
		return nil
	})
	if err != nil {
		return Key{}, Token{}, fmt.Errorf("rotate API key: %w", err)
	}
	return key, token, nil
}

// DeleteParams are the parameters of a deletion.
type DeleteParams struct{ If Condition }

// Delete removes the account's key with the given ID, or returns [apierr.ErrNotFound]. Once Delete
// has returned nil, all requests with the key are refused.
func (s *KeyService) Delete(ctx context.Context, account, keyID string, params DeleteParams) error {
	var entry audit.Entry
	err := errChanged
	for errors.Is(err, errChanged) {
		check, refused := s.ask(ctx, account, keyID, params.If, func(key *Key) error { *key = Key{}; return nil })
		if refused != nil {
			return fmt.Errorf("delete API key: %w", refused)
		}
		key, missing := s.store.KeyByID(ctx, account, keyID)
		if missing != nil {
			return fmt.Errorf("delete API key: %w", missing)
		}
		entry = s.entry(ctx, audit.KeyDeleted, &key)
		err = s.store.DeleteKey(ctx, account, keyID, func(now Key) error {
			if now.Name != key.Name || now.Hint != key.Hint { // the audit entry needs the current name
				return errChanged
			}
			if check == nil {
				return nil
			}
			return check(now)
		}, entry)
	}
	s.changed(account, keyID)
	if err != nil {
		return fmt.Errorf("delete API key: %w", err)
	}
	s.observer.Changed(&entry)
	return nil
}
