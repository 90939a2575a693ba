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

// A Condition decides whether a key may change from before to after. before is the zero Key for a
// creation, after is the zero Key for a deletion. If it returns an error, nothing changes, and
// the caller gets that error, wrapped. A nil Condition allows every change. Use it for
// authorization and for compare-and-swap.
//
// It runs after the parameters are validated and outside the store's transaction, so it may be
// slow and may call the service. If the key changes concurrently, it is called again with the new
// state.
type Condition func(before, after Key) error

func (c Condition) ask(before, after Key) error {
	if c == nil {
		return nil
	}
	return c(before, after)
}

// errChanged means that the key has changed since the condition was called.
var errChanged = errors.New("the API key was changed concurrently")

// change changes a key by apply if the condition holds, and returns the changed key.
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
		s.changed(account, keyID)
		if err != nil {
			return Key{}, err
		}
		s.observer.Changed(&stored)
		return s.shown(changed, before), nil
	}
}

// ask calls the condition for a change of a key by apply, and returns its error. It does so
// before the store's transaction, where a slow condition would block other writers. The
// transaction must call check, unless it is nil: check returns errChanged if the key has changed
// since.
func (s *KeyService) ask(ctx context.Context, account, keyID string, condition Condition, apply func(*Key)) (check func(Key) error, err error) {
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
	asked.Scopes = s.scopes.Resolve(found.Scopes) // so that the caller's scopes can cover them
	after := asked
	apply(&after)
	if err := condition(asked, after); err != nil {
		return nil, err
	}
	return func(key Key) error {
		if !fields.Equal((*listed.Key)(&key), (*listed.Key)(&found), fields.Conditioned) {
			return errChanged
		}
		return nil
	}, nil
}
