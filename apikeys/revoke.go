package apikeys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
)

// RevokeValue revokes a leaked value, of a key in any account, and returns its description from
// before. If it is the key's current value, the key is deleted, as by [KeyService.Delete]. If a
// rotation has replaced it, only this value is revoked, and the current one stays valid. Once
// RevokeValue has returned nil, requests with the value are refused.
//
// It returns [apierr.ErrNotFound] if [KeyService.Lookup] does not find the value, so a repeated
// call does. It needs no authority: call it for a caller who knows the value, or for an operator.
func (s *KeyService) RevokeValue(ctx context.Context, token string) (Value, error) {
	for {
		value, hash, err := s.find(ctx, token)
		if err != nil {
			return Value{}, fmt.Errorf("revoke API key by value: %w", err)
		}
		// The rotation of a key may turn its current value into the previous one meanwhile.
		same := func(before, _ Key) error {
			if value.Replaced && before.Previous == hash || !value.Replaced && before.Hash == hash {
				return nil
			}
			return errChanged
		}
		if value.Replaced {
			_, err = s.change(ctx, value.Key.Account, value.Key.ID, same, dropPrevious)
		} else {
			err = s.Delete(ctx, value.Key.Account, value.Key.ID, DeleteParams{If: same})
		}
		if errors.Is(err, errChanged) || errors.Is(err, apierr.ErrNotFound) {
			continue // find the value where it is now, if anywhere
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
