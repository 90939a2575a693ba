package auth

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// A Credential is the verified API key value of a request. A store compares it with the stored key
// in the same transaction as a change (compare-and-swap), so that a request changes nothing if its
// key has since been rotated, turned off or deleted. The zero Credential represents the host itself. A
// Credential prints as "[redacted]".
type Credential struct {
	KeyID string

	// Limited means that the key expires, lacks a scope or has another limit. Such a key can create
	// keys and webhooks only while the account has less than half of its maximum. The account's other
	// keys may be unable to manage the keys that it creates, so without this limit a leaked key could
	// lock out the account's owner.
	Limited bool

	hash     [sha256.Size]byte
	replaced bool
}

// ErrCredentialChanged is returned if the key of a [Credential] was rotated, turned off or deleted
// after it was verified. The call has changed nothing. Verify the key again, and retry if it is
// still valid.
var ErrCredentialChanged = errors.New("the API key of this request has been rotated, turned off or deleted")

// NewCredential returns the Credential for a value of a key. hash is the SHA-256 of the value.
// replaced means that a rotation had already replaced the value when it was verified.
func NewCredential(keyID string, hash [sha256.Size]byte, replaced bool) Credential {
	return Credential{KeyID: keyID, hash: hash, replaced: replaced}
}

// IsZero reports whether c is the zero Credential.
func (c Credential) IsZero() bool { return c == Credential{} }

// Matches reports whether c is still a value of a key with these hashes.
func (c Credential) Matches(current, previous [sha256.Size]byte) bool {
	if c.replaced {
		return c.hash == previous
	}
	return c.hash == current
}

// Format prints "[redacted]", because an attacker of a store may be able to use a hash like the
// value itself.
func (c Credential) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }
