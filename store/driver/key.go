package driver

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// A Key is a stored API key. It does not contain the token. Package internal/listed lists its
// fields.
type Key struct {
	ID      string // "key_" and a ULID; later keys sort after earlier ones
	Account string // the account that owns the key
	Name    string // 1 to 128 characters

	// Scopes are the permissions of the key. A store also keeps scopes that are no longer declared;
	// the service returns them as [scopes.Set.Unknown].
	Scopes scopes.Set

	// Resources limits the key to resources of the host; zero means no limit. It never changes.
	Resources auth.Resources

	// CreatedAt and ExpiresAt are in UTC, to the millisecond. The key is invalid from
	// ExpiresAt on; zero means that it never expires.
	CreatedAt time.Time
	ExpiresAt time.Time

	// CreatedBy is the actor that created the key: the API key whose credential requested the
	// creation, or else the actor in the context of the creation. Zero means unknown, as for
	// imported keys and keys older than this field.
	CreatedBy audit.Actor

	// Hash is the hash of the current token, which is valid until ExpiresAt.
	Hash Hash

	// Hint identifies the current token to people, see apikeys.Token.Hint. It is empty for imported
	// keys and for keys older than this field.
	Hint string

	// Previous is the hash of the token before the last rotation. That token is valid until
	// PreviousExpiresAt, which is never later than ExpiresAt. Zero means none. The service omits it
	// once it has expired.
	Previous          Hash
	PreviousHint      string // as Hint
	PreviousExpiresAt time.Time

	// AllowedNetworks are the networks from which the key can be used, and RateLimit is how many
	// requests per minute it can make; empty and 0 mean no limit of its own. They never change.
	AllowedNetworks auth.Networks
	RateLimit       uint64

	// LastUsedAt is when a token of the key was last verified, to within about a minute; zero means
	// never. If more than 65,536 keys are used in one minute, some uses may be recorded later.
	// PreviousUsedAt is the last use of the Previous token, before or after the rotation. Activity
	// is as up to date; see [Key.ScopesUsed], [Key.NetworksUsed] and [Key.Refusals]. All three are
	// stored apart from the key's record: only [KeyStore.RecordKeyUse] writes them, and
	// [KeyStore.KeyByHash] leaves them zero.
	LastUsedAt     time.Time
	PreviousUsedAt time.Time
	Activity       KeyActivity

	// RotatedAt is when the last rotation issued the current token; zero means that the key was never
	// rotated.
	RotatedAt time.Time

	Disabled bool   // no token of the key is valid
	Labels   Labels // set by the key's owners; they never affect a decision
}

// Accepts reports whether the key is enabled and the credential is for its current or previous
// token.
func (k *Key) Accepts(by auth.Credential) bool {
	return !k.Disabled && by.Matches(k.Hash.Sum, k.Previous.Sum)
}

// Labels are the labels of a key, as the text of a JSON object with sorted names. Labels are
// immutable and comparable, and reading a key does not parse them. Empty means none.
type Labels string

// LabelsOf returns the labels with the names and values of the map.
func LabelsOf(values map[string]string) Labels {
	if len(values) == 0 {
		return ""
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // would take up to six times the space
	_ = encoder.Encode(values)   // strings can always be encoded
	return Labels(strings.TrimSuffix(text.String(), "\n"))
}

// Map returns a new map from name to value.
func (l Labels) Map() map[string]string {
	values := make(map[string]string)
	_ = json.Unmarshal([]byte(l), &values) // fails if l is empty
	return values
}

// A KeyUse is the last use of a token of a key. If only the key's activity is recorded, Hash and At
// are zero.
type KeyUse struct {
	Account  string
	ID       string
	Hash     Hash      // of the token
	At       time.Time // UTC, to the millisecond
	Activity KeyActivity
}
