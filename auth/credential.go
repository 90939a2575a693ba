package auth

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// A Credential is the value of an API key that a request came with, as it was verified.
// A store compares it with the key in the same step that makes the change (a
// compare-and-swap), so that a key that has been rotated or deleted since changes
// nothing. The zero Credential is that of the host itself. It prints as "[redacted]".
type Credential struct {
	KeyID string

	// Limited says that the key expires or does not hold all scopes, so that there may be keys
	// of the account that it cannot manage: it may not use up all that the account may have.
	Limited bool

	hash     [sha256.Size]byte
	replaced bool
}

// ErrCredentialChanged is returned if the key of a [Credential] was rotated or deleted
// after it was verified. Nothing was changed. Verify the key again, and retry if it is
// still valid.
var ErrCredentialChanged = errors.New("the API key of this request has been rotated or deleted")

// NewCredential returns the Credential of a key's value by the value's SHA-256.
// Replaced says that a rotation had replaced the value when it was verified.
func NewCredential(keyID string, hash [sha256.Size]byte, replaced bool) Credential {
	return Credential{KeyID: keyID, hash: hash, replaced: replaced}
}

// IsZero reports whether c is the zero Credential.
func (c Credential) IsZero() bool { return c == Credential{} }

// Matches reports whether c is still what it was when it was verified, given the hashes
// that its key has now.
func (c Credential) Matches(current, previous [sha256.Size]byte) bool {
	if c.replaced {
		return c.hash == previous
	}
	return c.hash == current
}

// Format prints nothing of a Credential: to a store a hash can be as good as the value.
func (c Credential) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }
