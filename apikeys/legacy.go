package apikeys

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/store/driver"
)

const (
	maxLegacy       = 4   // limits the cost of verifying an invalid value
	maxLegacyLength = 512 // bytes
)

// A Legacy describes the format of key values issued by another system, so that keys added by
// [KeyService.Import] keep working. Keep the Legacy in [Config.Legacy] while such keys may be used;
// without it they are refused.
//
// Verify first checks the format, without reading the store. It then hashes every value that
// matches and looks up the hash, so a stored digest is never accepted as a value.
type Legacy struct {
	// Kind names the format and is used in [ImportedKey]: 1 to 32 lower-case letters, digits, "-"
	// and "_". It is not stored: a digest belongs to at most one key, regardless of Kind.
	Kind string

	// A value begins with Prefix and is MinLength to MaxLength bytes long, including Prefix. After
	// Prefix it contains only bytes of Alphabet. MaxLength is at most 512. The narrower the format,
	// the fewer invalid values cause a read of the store. Prefix may be empty; the other fields are
	// required.
	Prefix               string
	MinLength, MaxLength int
	Alphabet             string

	// Pepper is the secret key for HMAC-SHA256 digests. If empty, digests are plain SHA-256.
	Pepper []byte

	// Digest replaces the default digest, for example to hash only a part of the value. It must be
	// one-way. Default: see Pepper.
	Digest func(value string) [32]byte
}

// A legacy is a validated Legacy.
type legacy struct {
	Legacy
	inAlphabet [256]bool
}

// newLegacies validates the Legacy list of a Config.
func newLegacies(registered []Legacy) ([]legacy, error) {
	if len(registered) > maxLegacy {
		return nil, input.Invalid("Legacy", fmt.Sprintf("must be at most %d, not %d", maxLegacy, len(registered)))
	}
	list := make([]legacy, len(registered))
	for i, l := range registered {
		field := fmt.Sprintf("Legacy[%d]", i)
		switch {
		case l.Kind == "" || len(l.Kind) > 32 || strings.Trim(l.Kind, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
			return nil, input.Invalid(field+".Kind", `must be 1 to 32 lower-case letters, digits, "-" and "_"`)
		case legacyOf(list[:i], l.Kind) != nil:
			return nil, input.Invalid(field+".Kind", fmt.Sprintf("must be unique: %q is registered twice", l.Kind))
		case l.Alphabet == "":
			return nil, input.Invalid(field+".Alphabet", "must list the bytes allowed after the prefix")
		case l.MinLength < 16 || l.MinLength <= len(l.Prefix):
			return nil, input.Invalid(field+".MinLength", "must be at least 16 and more than the length of the prefix: shorter values can be guessed")
		case l.MaxLength < l.MinLength || l.MaxLength > maxLegacyLength:
			return nil, input.Invalid(field+".MaxLength", fmt.Sprintf("must be MinLength to %d", maxLegacyLength))
		case l.Digest != nil && len(l.Pepper) > 0:
			return nil, input.Invalid(field+".Pepper", "must not be combined with Digest")
		}
		l.Pepper = append([]byte(nil), l.Pepper...)
		list[i].Legacy = l
		for _, b := range []byte(l.Alphabet) {
			list[i].inAlphabet[b] = true
		}
	}
	return list, nil
}

func legacyOf(list []legacy, kind string) *legacy {
	for i := range list {
		if list[i].Kind == kind {
			return &list[i]
		}
	}
	return nil
}

// recognises reports whether token has this format.
func (l *legacy) recognises(token string) bool {
	if len(token) < l.MinLength || len(token) > l.MaxLength || !strings.HasPrefix(token, l.Prefix) {
		return false
	}
	for i := len(l.Prefix); i < len(token); i++ {
		if !l.inAlphabet[token[i]] {
			return false
		}
	}
	return true
}

// hashOf returns the hash under which the store keeps a token of this format.
func (l *legacy) hashOf(token string) driver.Hash {
	switch {
	case l.Digest != nil:
		return storedDigest(l.Digest(token))
	case len(l.Pepper) > 0:
		mac := hmac.New(sha256.New, l.Pepper)
		mac.Write([]byte(token))
		return storedDigest([sha256.Size]byte(mac.Sum(nil)))
	}
	return storedDigest(sha256.Sum256([]byte(token)))
}

// storedDigest returns the hash under which an imported digest is stored. It differs from the hash
// of every token that this package issues. It does not depend on the kind, because otherwise keys
// of two accounts could have the same value.
func storedDigest(digest [sha256.Size]byte) driver.Hash {
	return driver.Hash{Sum: sha256.Sum256(append([]byte("storageapi imported key\x00"), digest[:]...))}
}

// hashes returns the hashes under which token may be stored, or none if its format is unknown.
func (s *KeyService) hashes(token string, buf *[1 + maxLegacy]driver.Hash) []driver.Hash {
	list := buf[:0]
	if wellFormed(token) {
		list = append(list, hashOf(token))
	}
	for i := range s.legacy {
		if !s.legacy[i].recognises(token) {
			continue
		}
		if hash := s.legacy[i].hashOf(token); !slices.Contains(list, hash) {
			list = append(list, hash)
		}
	}
	return list
}

// Credential returns the Credential of token, which Verify has already accepted with principal p.
// If several formats match the token, it reads the store.
func (s *KeyService) Credential(ctx context.Context, token string, p auth.Principal) auth.Credential {
	credential := s.credential(ctx, token, p)
	credential.Limited = !p.ExpiresAt.IsZero() || !p.Scopes.Covers(s.scopes.All()) || !p.LimitedTo.IsZero() || p.Networks != "" || p.RateLimit != 0
	return credential
}

func (s *KeyService) credential(ctx context.Context, token string, p auth.Principal) auth.Credential {
	var buf [1 + maxLegacy]driver.Hash
	hashes := s.hashes(token, &buf)
	switch len(hashes) {
	case 0: // impossible for a verified value
		return auth.NewCredential(p.KeyID, hashOf(token).Sum, p.Replaced)
	case 1:
		return auth.NewCredential(p.KeyID, hashes[0].Sum, p.Replaced)
	}
	if key, err := s.store.KeyByID(ctx, p.Account, p.KeyID); err == nil {
		for _, hash := range hashes {
			if hash == key.Hash || hash == key.Previous {
				return auth.NewCredential(p.KeyID, hash.Sum, p.Replaced)
			}
		}
	}
	return auth.NewCredential(p.KeyID, hashes[0].Sum, p.Replaced) // the store's transaction detects the change
}
