package apikeys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
)

// RevokeValue revokes a leaked value, whichever account its key belongs to. It returns the value's
// description from before the revocation. If the value is the key's current one, the key is
// deleted, as by [KeyService.Delete]. If a rotation has replaced the value, only this value is
// revoked, and the key's current value stays valid. Once RevokeValue has returned nil, requests
// with the revoked value are refused.
//
// It returns [apierr.ErrNotFound] if [KeyService.Lookup] does not find the value, as after an
// earlier revocation. It does not check authority: call it only for a caller who knows the value,
// or for an operator.
func (s *KeyService) RevokeValue(ctx context.Context, token string) (Value, error) {
	for {
		value, hash, err := s.find(ctx, token)
		if err != nil {
			return Value{}, fmt.Errorf("revoke API key by value: %w", err)
		}
		// A concurrent rotation may turn the current value into the previous one.
		same := func(before, _ Key) error {
			if value.Replaced && before.Previous == hash || !value.Replaced && before.Hash == hash {
				return nil
			}
			return errChanged
		}
		if value.Replaced {
			_, err = s.change(ctx, value.Key.Account, value.Key.ID, same, func(key *Key) error { dropPrevious(key); return nil })
		} else {
			err = s.Delete(ctx, value.Key.Account, value.Key.ID, DeleteParams{If: same})
		}
		if errors.Is(err, errChanged) || errors.Is(err, apierr.ErrNotFound) {
			continue // look the value up again
		}
		if err != nil {
			return Value{}, fmt.Errorf("revoke API key by value: %w", err)
		}
		return value, nil
	}
}

func dropPrevious(key *Key) {
	key.Previous, key.PreviousHint, key.PreviousExpiresAt, key.PreviousUsedAt = driver.Hash{}, "", time.Time{}, time.Time{}
}
