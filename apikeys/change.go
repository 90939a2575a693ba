package apikeys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/audit"
)

// UpdateParams says what to change of a key. What is nil stays as it is.
type UpdateParams struct {
	Name *string // as in CreateParams
	If   Condition
}

// Update changes the account's key of that id and returns it, or [ErrNotFound].
// Of several updates at once none is lost: each changes what the one before left.
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

// RotateParams says how to rotate a key.
type RotateParams struct {
	// Grace is how long the token before stays good, 0 or more, counted to the
	// millisecond; never past the key's own expiry.
	Grace time.Duration

	If Condition
}

// Rotate gives the account's key a new token and returns it. The token before
// stays good for the grace period; one from an earlier rotation dies now, so that
// there are at most two. Scopes and expiry stay as they are. [ErrNotFound] if there
// is no such key. A request that is being verified at that moment goes by the key
// as it was or as it is then.
func (s *KeyService) Rotate(ctx context.Context, account, keyID string, params RotateParams) (Key, Token, error) {
	if params.Grace < 0 {
		return Key{}, Token{}, invalid("Grace", "must not be negative")
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

// DeleteParams says on what condition to delete a key.
type DeleteParams struct{ If Condition }

// Delete removes the account's key of that id, or returns [ErrNotFound]. Once
// it has returned nil, no request with the key is let through.
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
			if now.Name != key.Name || now.Hint != key.Hint { // the audit entry names it as it is
				return errChanged
			}
			if check == nil {
				return nil
			}
			return check(now)
		}, entry)
	}
	if err != nil {
		return fmt.Errorf("delete API key: %w", err)
	}
	s.observer.Changed(&entry)
	return nil
}
