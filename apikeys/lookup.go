package apikeys

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Value is a value of a key: its present one, or the one before the last rotation.
type Value struct {
	Key      Key    // that it is a value of, as [KeyService.Get] returns it
	Hint     string // see [Token.Hint]; empty: not known
	Replaced bool   // a rotation has replaced it

	// ExpiresAt is when it dies, or died; zero: never. Live says that [KeyService.Verify]
	// accepts it now.
	ExpiresAt time.Time
	Live      bool
}

// Lookup returns which key a value is of, in whatever account: for people who have found one
// and must know whose it is. It neither authenticates nor counts as a use, and also finds
// values that have expired. [ErrNotFound] if the value is malformed or no key has it: its key
// was deleted, or rotated again since.
//
// It asks for no account, so its answer is for the host's operators, or for who has shown that
// the value is theirs.
func (s *KeyService) Lookup(ctx context.Context, token string) (Value, error) {
	var buf [1 + maxLegacy]Hash
	for _, hash := range s.hashes(token, &buf) {
		value, err := s.lookUp(ctx, hash)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return Value{}, fmt.Errorf("look up API key: %w", err)
		}
		return value, nil
	}
	return Value{}, fmt.Errorf("look up API key: %w", ErrNotFound)
}

func (s *KeyService) lookUp(ctx context.Context, hash Hash) (Value, error) {
	found, err := s.store.KeyByHash(ctx, hash)
	if err != nil {
		return Value{}, err
	}
	before := s.uses.unwritten()
	key, err := s.store.KeyByID(ctx, found.Account, found.ID) // with its uses, and as it is now
	if err != nil {
		return Value{}, err
	}
	expiresAt, ok := key.expiryOf(hash)
	if !ok {
		return Value{}, ErrNotFound
	}
	value := Value{Hint: key.Hint, Replaced: hash != key.Hash, ExpiresAt: expiresAt, Live: expiresAt.IsZero() || s.now().Before(expiresAt)}
	if value.Replaced {
		value.Hint = key.PreviousHint
	}
	value.Key = s.shown(key, before)
	return value, nil
}
