package driver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/scopes"
)

// A Key is an API key as it is stored: everything but its token.
type Key struct {
	ID      string // "key_" and a ULID; later keys sort after earlier ones
	Account string // the account that owns the key
	Name    string // 1 to 128 characters

	// Scopes are the permissions of the key. The service returns scopes that are no longer declared
	// as [scopes.Set.Unknown]; a store keeps them like all others.
	Scopes scopes.Set

	// CreatedAt and ExpiresAt are in UTC, to the millisecond. The key is invalid from
	// ExpiresAt on; zero means that it never expires.
	CreatedAt time.Time
	ExpiresAt time.Time

	// CreatedBy is the creator: the key whose credential created it, or else the actor in the
	// context of the creation. Zero means unknown, as for imported keys and keys older than
	// this field.
	CreatedBy audit.Actor

	// Hash is the hash of the current token, which is valid until ExpiresAt.
	Hash Hash

	// Hint identifies the current token to people, see apikeys.Token.Hint. It is empty for imported
	// keys and for keys older than this field.
	Hint string

	// Previous is the hash of the token before the last rotation. That token is valid until
	// PreviousExpiresAt, which is never later than ExpiresAt. Zero: none. The service omits it once
	// it has expired.
	Previous          Hash
	PreviousHint      string // as Hint
	PreviousExpiresAt time.Time

	// LastUsedAt is when a token of the key was last verified, to within about a minute; zero:
	// never. If more than 65,536 keys are used in one minute, some uses may be recorded later.
	// PreviousUsedAt is the last use of the Previous token, since it was issued. Both are stored
	// apart from the key's record: only [KeyStore.RecordKeyUse] writes them, and
	// [KeyStore.KeyByHash] leaves them zero.
	LastUsedAt     time.Time
	PreviousUsedAt time.Time
}

// Fields lists the fields of a key for the stores of this module, for exports, and for the
// comparisons of the service. A new field needs a line here with the next even tag; the stores need
// no other change to keep it.
func (k *Key) Fields(w *fields.Walk) {
	if !w.Packed() {
		fields.Text(w, "account", fields.Placed, 0, &k.Account)
		fields.Text(w, "id", fields.Placed, 0, &k.ID)
		fields.Text(w, "name", fields.Placed, fields.Setting|fields.Created, &k.Name)
		fields.FormattedTexts(w, "scopes", fields.Placed, fields.Setting|fields.Created, &k.Scopes, scopes.Set.Names, scopes.FromNames)
		fields.Time(w, "createdAt", fields.Placed, 0, &k.CreatedAt)
		fields.Time(w, "expiresAt", fields.Placed, fields.Setting|fields.Created, &k.ExpiresAt)
		fields.Formatted(w, "hash", fields.Placed, fields.Value, &k.Hash, formatHash, parseHash)
		fields.Formatted(w, "previous", fields.Placed, fields.Guarded, &k.Previous, formatHash, parseHash)
		fields.Time(w, "previousExpiresAt", fields.Placed, 0, &k.PreviousExpiresAt)
		fields.Time(w, "lastUsedAt", fields.Placed, 0, &k.LastUsedAt)
		fields.Time(w, "previousUsedAt", fields.Placed, 0, &k.PreviousUsedAt)
	}
	fields.Text(w, "hint", 2, 0, &k.Hint)
	fields.Text(w, "createdByKind", 4, 0, &k.CreatedBy.Kind)
	fields.Text(w, "createdById", 6, 0, &k.CreatedBy.ID)
	fields.Text(w, "previousHint", 8, 0, &k.PreviousHint)
}

func formatHash(h Hash) string {
	if h.IsZero() {
		return ""
	}
	return hex.EncodeToString(h.Sum[:])
}

func parseHash(text string) (h Hash, err error) {
	if len(text) != hex.EncodedLen(sha256.Size) {
		return h, errors.New("must be 64 hexadecimal digits")
	}
	_, err = hex.Decode(h.Sum[:], []byte(text))
	return h, err
}

// A KeyUse is the last use of a token of a key.
type KeyUse struct {
	Account string
	ID      string
	Hash    Hash      // of the token
	At      time.Time // UTC, to the millisecond
}
