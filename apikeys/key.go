package apikeys

import (
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
)

// A Key is an API key as it is stored: everything but its token.
type Key struct {
	ID      string // "key_" and a ULID; later keys sort after earlier ones
	Account string // who it belongs to
	Name    string // 1 to 128 characters

	// Scopes are the permissions of the key. A [KeyService] returns scopes that are no longer
	// declared as [scopes.Set.Unknown]; a [Store] stores all alike.
	Scopes scopes.Set

	// CreatedAt and ExpiresAt are in UTC, to the millisecond. The key is invalid from
	// ExpiresAt on; zero means that it never expires.
	CreatedAt time.Time
	ExpiresAt time.Time

	// CreatedBy is the creator: the key of [CreateParams.By], or else the actor in the context
	// of [KeyService.Create]. Zero means unknown, as for imported keys and keys older than
	// this field.
	CreatedBy audit.Actor

	// Hash is the hash of the current token, which is valid until ExpiresAt.
	Hash Hash

	// Hint identifies the current token to people, see [Token.Hint]. It is empty for imported
	// keys and for keys older than this field.
	Hint string

	// Previous is the hash of the token before the last rotation. That token is valid
	// until PreviousExpiresAt, which is never later than ExpiresAt. Zero: none. A
	// [KeyService] omits an expired one.
	Previous          Hash
	PreviousHint      string // as Hint
	PreviousExpiresAt time.Time

	// LastUsedAt is when a token of the key was last verified, to within about a
	// minute; zero: never. If more than 65,536 keys are used in one minute, some uses
	// may be recorded later. PreviousUsedAt is the last use of the Previous token,
	// since it was issued. Both are outside of the key's record: only
	// [Store.RecordKeyUse] writes them, and [Store.KeyByHash] leaves them zero.
	LastUsedAt     time.Time
	PreviousUsedAt time.Time
}

// expiryOf returns when the token with the given hash expires (zero: never), or
// false if the key has no such token.
func (k *Key) expiryOf(hash Hash) (time.Time, bool) {
	switch hash {
	case k.Hash:
		return k.ExpiresAt, true
	case k.Previous:
		return k.PreviousExpiresAt, true
	}
	return time.Time{}, false
}

// A KeyUse is the last use of a token of a key.
type KeyUse struct {
	Account string
	ID      string
	Hash    Hash      // of the token
	At      time.Time // UTC, to the millisecond
}
