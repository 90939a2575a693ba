package auth

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// A Credential is the value of an API key by which something is asked for, as it was
// verified. A store compares it with the key in the very step that does what is asked,
// so that a key that was rotated or deleted meanwhile creates nothing. The zero
// Credential is none: the host itself asks. It prints as "[redacted]".
type Credential struct {
	KeyID    string
	hash     [sha256.Size]byte
	replaced bool
}

// ErrCredentialChanged is returned where something was asked for by a [Credential]
// whose key was rotated or deleted after it was verified. Nothing was done. Verify the
// key again, and ask again if it is still good.
var ErrCredentialChanged = errors.New("the API key that asks for this was rotated or deleted meanwhile")

// NewCredential returns the Credential of a key's value by the value's SHA-256.
// Replaced says that a rotation had replaced the value when it was verified.
func NewCredential(keyID string, hash [sha256.Size]byte, replaced bool) Credential {
	return Credential{keyID, hash, replaced}
}

// IsZero reports whether c is none.
func (c Credential) IsZero() bool { return c == Credential{} }

// Matches reports whether c is what it was when it was verified, where its key has
// these hashes now: a value that was the current one has not been replaced since.
func (c Credential) Matches(current, previous [sha256.Size]byte) bool {
	if c.replaced {
		return c.hash == previous
	}
	return c.hash == current
}

// Format prints nothing of a Credential: a hash can be as good as its value to a store.
func (c Credential) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }
