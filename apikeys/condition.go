package apikeys

import (
	"context"
	"errors"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/input"
)

// A Condition decides whether a key may be changed from what it is to what it would be:
// before is the zero Key for a creation, after is the zero Key for a deletion. If it
// returns an error nothing is changed, and the caller gets that error, wrapped. A nil
// Condition always holds. Both authority and compare-and-swap go through it.
//
// It is asked once the parameters were found valid, and outside of the store's step, so
// it may take its time and may call the service. What it was asked about is what is
// changed: if something else changes the key meanwhile, it is asked again.
type Condition func(before, after Key) error

func (c Condition) ask(before, after Key) error {
	if c == nil {
		return nil
	}
	return c(before, after)
}

// errChanged says that a key is not what the condition was asked about.
var errChanged = errors.New("the API key was changed meanwhile")

// change changes a key by apply, on a condition, and returns it.
func (s *KeyService) change(ctx context.Context, account, keyID string, condition Condition, apply func(*Key)) (Key, error) {
	before := s.uses.unwritten()
	var stored audit.Entry
	for {
		check, err := s.ask(ctx, account, keyID, condition, apply)
		if err != nil {
			return Key{}, err
		}
		changed, err := s.store.UpdateKey(ctx, account, keyID, func(key *Key, entry *audit.Entry) error {
			if check != nil {
				if err := check(*key); err != nil {
					return err
				}
			}
			old := *key
			apply(key)
			stored = s.changeAuditEntry(ctx, &old, key)
			*entry = stored
			return nil
		})
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil {
			return Key{}, err
		}
		s.observer.Changed(&stored)
		return s.shown(changed, before), nil
	}
}

// ask asks the condition about a change of a key by apply, and returns its error. Within
// the store's step it would hold up all others, so there only check, unless it is nil, is
// called: it returns errChanged if the condition was asked about something else.
func (s *KeyService) ask(ctx context.Context, account, keyID string, condition Condition, apply func(*Key)) (check func(Key) error, err error) {
	if !input.ID(keyID) {
		return nil, ErrNotFound
	}
	if condition == nil {
		return nil, nil
	}
	found, err := s.store.KeyByID(ctx, account, keyID)
	if err != nil {
		return nil, err
	}
	asked := found
	asked.Scopes = s.scopes.Resolve(found.Scopes) // so that those of the caller can cover them
	after := asked
	apply(&after)
	if err := condition(asked, after); err != nil {
		return nil, err
	}
	return func(key Key) error {
		if !key.equalSettings(&found) {
			return errChanged
		}
		return nil
	}, nil
}

// equalSettings reports whether two states of a key differ in nothing but its uses.
func (k *Key) equalSettings(other *Key) bool {
	return k.Name == other.Name && k.Scopes == other.Scopes && k.ExpiresAt.Equal(other.ExpiresAt) &&
		k.Hash == other.Hash && k.Previous == other.Previous
}
