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
	If   Condition
}

// Update changes the account's key with the given ID and returns it, or [apierr.ErrNotFound].
// Concurrent updates are serialized, so none is lost.
func (s *KeyService) Update(ctx context.Context, account, keyID string, params UpdateParams) (Key, error) {
	if params.Name != nil {
		if err := checkName(*params.Name); err != nil {
			return Key{}, err
		}
	}
	key, err := s.change(ctx, account, keyID, params.If, func(key *Key) {
		if params.Name != nil {
			key.Name = *params.Name
		}
	})
	if err != nil {
		return Key{}, fmt.Errorf("update API key: %w", err)
	}
	return key, nil
}

// RotateParams are the parameters of a rotation.
type RotateParams struct {
	// Grace is how long the previous token stays valid, to the millisecond. It must not be
	// negative. The token never outlives the key's own expiry.
	Grace time.Duration

	If Condition
}

// Rotate gives the account's key a new token and returns both, or [apierr.ErrNotFound]. The current
// token stays valid for the grace period. If an earlier rotation left a previous token, that token
// expires now, so a key has at most two. Scopes and expiry stay unchanged. A request verified
// concurrently sees the key either before or after the rotation.
func (s *KeyService) Rotate(ctx context.Context, account, keyID string, params RotateParams) (Key, Token, error) {
	if params.Grace < 0 {
		return Key{}, Token{}, input.Invalid("Grace", "must not be negative")
	}
	token := newToken(s.prefix)
	until := s.now().UTC().Add(params.Grace).Truncate(time.Millisecond)
	key, err := s.change(ctx, account, keyID, params.If, func(key *Key) {
		key.Previous, key.PreviousHint, key.PreviousExpiresAt = key.Hash, key.Hint, until
		if !key.ExpiresAt.IsZero() && key.ExpiresAt.Before(until) {
			key.PreviousExpiresAt = key.ExpiresAt
		}
		key.Hash, key.Hint = token.Hash(), token.Hint()
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
		check, refused := s.ask(ctx, account, keyID, params.If, func(key *Key) { *key = Key{} })
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
