package apikeys

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/store/driver"
)

// A Value describes one value of a key: the current one, or the previous one after a rotation.
type Value struct {
	Key      Key    // as [KeyService.Get] returns it
	Hint     string // see [Token.Hint]; empty means unknown
	Replaced bool   // a rotation has replaced the value

	// ExpiresAt is when the value expires or expired; zero means never. Live is true if
	// [KeyService.VerifyFrom] accepts the value now from an allowed network.
	ExpiresAt time.Time
	Live      bool
}

// Lookup returns the key that a value belongs to, in any account. It helps people who have found a
// value to identify its owner. Lookup is neither an authentication nor a use of the key, and it
// also finds values that are expired or disabled. It returns [apierr.ErrNotFound] if the value is
// malformed or no key has it, for example because its key was deleted or rotated again.
//
// Lookup searches all accounts, so show its result only to the host's operators or to a person who
// has proven to own the value.
func (s *KeyService) Lookup(ctx context.Context, token string) (Value, error) {
	value, _, err := s.find(ctx, token)
	if err != nil {
		return Value{}, fmt.Errorf("look up API key: %w", err)
	}
	return value, nil
}

// find returns the value and the hash under which it is stored, or [apierr.ErrNotFound].
func (s *KeyService) find(ctx context.Context, token string) (Value, driver.Hash, error) {
	var buf [1 + maxLegacy]driver.Hash
	for _, hash := range s.hashes(token, &buf) {
		value, err := s.lookUp(ctx, hash)
		if !errors.Is(err, apierr.ErrNotFound) {
			return value, hash, err
		}
	}
	return Value{}, driver.Hash{}, apierr.ErrNotFound
}

func (s *KeyService) lookUp(ctx context.Context, hash driver.Hash) (Value, error) {
	found, err := s.store.KeyByHash(ctx, hash)
	if err != nil {
		return Value{}, err
	}
	before := s.uses.unwritten()
	key, err := s.store.KeyByID(ctx, found.Account, found.ID) // KeyByHash omits uses and may answer from a cache
	if err != nil {
		return Value{}, err
	}
	expiresAt, outcome := s.usable(&key, hash, s.now())
	if outcome == observe.Unknown {
		return Value{}, apierr.ErrNotFound
	}
	value := Value{Hint: key.Hint, Replaced: hash != key.Hash, ExpiresAt: expiresAt, Live: outcome == observe.OK}
	if value.Replaced {
		value.Hint = key.PreviousHint
	}
	value.Key = s.shown(key, before)
	return value, nil
}
