package apikeys

import (
	"context"
	"fmt"
	"time"
)

// A Condition is asked in the very step that changes or deletes a key, with the key
// as it is then: if it returns an error, nothing changes, and that is returned,
// wrapped. It may be asked more than once, and must not call the service. A nil
// Condition always holds.
type Condition func(Key) error

func (c Condition) check(key Key) error {
	if c == nil {
		return nil
	}
	return c(key)
}

// UpdateParams says what to change of a key. What is nil stays as it is.
type UpdateParams struct {
	Name *string // as in CreateParams
	If   Condition
}

// Update changes the account's key of that id and returns it, or [ErrNotFound].
// Of several updates at once none is lost: each changes what the one before left.
func (s *KeyService) Update(ctx context.Context, account, keyID string, params UpdateParams) (Key, error) {
	if err := params.Check(); err != nil {
		return Key{}, err
	}
	before := s.uses.unwritten()
	key, err := s.store.UpdateKey(ctx, account, keyID, func(key *Key) error {
		if err := params.If.check(*key); err != nil {
			return err
		}
		if params.Name != nil {
			key.Name = *params.Name
		}
		return nil
	})
	if err != nil {
		return Key{}, fmt.Errorf("update API key: %w", err)
	}
	return s.shown(key, before), nil
}

// Check returns the [*ValidationError] that Update would refuse params with: for
// callers that must know before they decide whether somebody may do that.
func (p UpdateParams) Check() error {
	if p.Name == nil {
		return nil
	}
	return checkName(*p.Name)
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
	before := s.uses.unwritten()
	key, err := s.store.UpdateKey(ctx, account, keyID, func(key *Key) error {
		if err := params.If.check(*key); err != nil {
			return err
		}
		key.Previous, key.PreviousExpiresAt = key.Hash, until
		if !key.ExpiresAt.IsZero() && key.ExpiresAt.Before(until) {
			key.PreviousExpiresAt = key.ExpiresAt
		}
		key.Hash = token.Hash()
		return nil
	})
	if err != nil {
		return Key{}, Token{}, fmt.Errorf("rotate API key: %w", err)
	}
	return s.shown(key, before), token, nil
}
