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

	// Scopes are what the key may do. [scopes.Set.Unknown] are those that it holds and
	// that are not declared any more, in what a [KeyService] returns; a [Store] keeps all.
	Scopes scopes.Set

	// CreatedAt and ExpiresAt are in UTC, to the millisecond. At ExpiresAt the
	// key is dead; zero means never.
	CreatedAt time.Time
	ExpiresAt time.Time

	// CreatedBy is who created it: the key of [CreateParams.By], or else the actor of the
	// context of [KeyService.Create]. Zero: not known, as of imported keys and of those that were created before
	// this was kept.
	CreatedBy audit.Actor

	// Hash is that of the token that is good until ExpiresAt.
	Hash Hash

	// Hint tells people which token that is, see [Token.Hint]; empty: not known, as of
	// imported keys and of those that were made before there were hints.
	Hint string

	// Previous is that of the token before the last rotation. It is good until
	// PreviousExpiresAt, which is never later than ExpiresAt. Zero: none; a
	// [KeyService] returns none that is dead.
	Previous          Hash
	PreviousHint      string // as Hint
	PreviousExpiresAt time.Time

	// LastUsedAt is when one of the key's tokens was last verified, to the
	// minute or so; zero: never. Of more than 65,536 keys used in one minute the
	// rest may be noted in a later one. PreviousUsedAt is the same of the token
	// of Previous alone, from when it was made. They are not part of the key's
	// record: only [Store.RecordKeyUse] writes them, and [Store.KeyByHash] leaves
	// them zero.
	LastUsedAt     time.Time
	PreviousUsedAt time.Time
}

// expiryOf returns when the token with the given hash dies (zero: never), and
// false if it is none of the key's.
func (k *Key) expiryOf(hash Hash) (time.Time, bool) {
	switch hash {
	case k.Hash:
		return k.ExpiresAt, true
	case k.Previous:
		return k.PreviousExpiresAt, true
	}
	return time.Time{}, false
}

// A KeyUse says when a token of a key was last verified.
type KeyUse struct {
	Account string
	ID      string
	Hash    Hash      // of the token
	At      time.Time // UTC, to the millisecond
}
