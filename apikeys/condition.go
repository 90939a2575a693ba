package apikeys

import (
	"context"
	"errors"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/internal/listed"
)

// A Condition decides whether a key may change from before to after. For a creation, before is the
// zero Key; for a deletion, after is the zero Key. If it returns an error, nothing changes, and the
// caller gets that error, wrapped. A nil Condition allows every change. Use it for authorization
// and for compare-and-swap.
//
// The service calls it after validating the parameters and outside the store's transaction, so it
// may be slow and may call the service. If the key changes concurrently, the service calls the
// Condition again with the new state.
type Condition func(before, after Key) error

// Extends reports whether a change to a key lets it be used for longer: because the change enables
// the key, or because the key then expires later or never. Allow such a change only to a caller who
// could create the changed key. A deletion extends nothing.
func Extends(before, after Key) bool {
	never := after.ExpiresAt.IsZero()
	later := !before.ExpiresAt.IsZero() && (never || after.ExpiresAt.After(before.ExpiresAt))
	return after.ID != "" && (later || before.Disabled && !after.Disabled)
}

func (c Condition) ask(before, after Key) error {
	if c == nil {
		return nil
	}
	return c(before, after)
}

// errChanged means that the key has changed since the condition was called.
var errChanged = errors.New("the API key was changed concurrently")

// change applies a change to a key if the condition allows it, and returns the changed key.
func (s *KeyService) change(ctx context.Context, account, keyID string, condition Condition, apply func(*Key) error) (Key, error) {
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
			if err := apply(key); err != nil {
				return err
			}
			stored = s.changeAuditEntry(ctx, &old, key)
			*entry = stored
			return nil
		})
		if errors.Is(err, errChanged) {
			continue
		}
		s.changed(account, keyID)
		if err != nil {
			return Key{}, err
		}
		s.observer.Changed(&stored)
		return s.shown(changed, before), nil
	}
}

// ask calls the condition with the current key and with the key as changed by apply, and returns
// the condition's error. It runs before the store's transaction, because a slow condition within
// the transaction would block other writers. If check is not nil, the transaction must call it:
// check returns errChanged if the key has changed since.
func (s *KeyService) ask(ctx context.Context, account, keyID string, condition Condition, apply func(*Key) error) (check func(Key) error, err error) {
	if !input.ID(keyID) {
		return nil, apierr.ErrNotFound
	}
	if condition == nil {
		return nil, nil
	}
	found, err := s.store.KeyByID(ctx, account, keyID)
	if err != nil {
		return nil, err
	}
	asked := found
	asked.Scopes = s.scopes.Resolve(found.Scopes) // conditions check these scopes, and this expiry
	asked.ExpiresAt = s.lifetime.expiry(&found)
	after := asked
	invalid := apply(&after)
	if err := condition(asked, after); err != nil {
		return nil, err // takes precedence over invalid, which reveals something about the key
	}
	if invalid != nil {
		return nil, invalid
	}
	return func(key Key) error {
		if !fields.Equal((*listed.Key)(&key), (*listed.Key)(&found), fields.Conditioned) {
			return errChanged
		}
		return nil
	}, nil
}
