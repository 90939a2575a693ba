package apikeys

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/auth"
)

const (
	maxLegacy       = 4   // bounds what a value can cost that is none
	maxLegacyLength = 512 // bytes
)

// A Legacy describes the values of keys that another system has issued, so that keys which
// [KeyService.Import] brought along go on working. Register it for as long as one of them
// may be used: without it they are refused.
//
// A value is recognised by its form first, which costs no store read; then its digest is
// taken, always, and looked up. What was stored as a digest is therefore never accepted as
// a value.
type Legacy struct {
	// Kind names it, as in [ImportedKey]: 1 to 32 lower-case letters, digits, "-" and "_".
	// It is not stored: a digest is of one key, whichever kind it was imported as.
	Kind string

	// A value begins with Prefix, has MinLength to MaxLength bytes with it, at most 512, and
	// after Prefix none that Alphabet does not have. The narrower, the less garbage reaches
	// the store. Prefix may be empty; the others are required.
	Prefix               string
	MinLength, MaxLength int
	Alphabet             string

	// Pepper keys the digest: it is then HMAC-SHA256 of the value. Empty: SHA-256.
	Pepper []byte

	// Digest takes the digest in another way, such as SHA-256 of a part of the value. It
	// must be one-way. Default: see Pepper.
	Digest func(value string) [32]byte
}

// A legacy is a Legacy that was checked.
type legacy struct {
	Legacy
	inAlphabet [256]bool
}

// newLegacies checks what a Config registers.
func newLegacies(registered []Legacy) ([]legacy, error) {
	if len(registered) > maxLegacy {
		return nil, invalid("Legacy", fmt.Sprintf("must be at most %d, not %d", maxLegacy, len(registered)))
	}
	list := make([]legacy, len(registered))
	for i, l := range registered {
		field := fmt.Sprintf("Legacy[%d]", i)
		switch {
		case l.Kind == "" || len(l.Kind) > 32 || strings.Trim(l.Kind, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "":
			return nil, invalid(field+".Kind", `must be 1 to 32 lower-case letters, digits, "-" and "_"`)
		case legacyOf(list[:i], l.Kind) != nil:
			return nil, invalid(field+".Kind", fmt.Sprintf("must be registered once: %q", l.Kind))
		case l.Alphabet == "":
			return nil, invalid(field+".Alphabet", "must name the bytes that a value consists of after its prefix")
		case l.MinLength < 16 || l.MinLength <= len(l.Prefix):
			return nil, invalid(field+".MinLength", "must be 16 or more, and more than the prefix has: shorter values can be guessed")
		case l.MaxLength < l.MinLength || l.MaxLength > maxLegacyLength:
			return nil, invalid(field+".MaxLength", fmt.Sprintf("must be MinLength to %d", maxLegacyLength))
		case l.Digest != nil && len(l.Pepper) > 0:
			return nil, invalid(field+".Pepper", "must not be given with Digest")
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

// recognises reports whether token has the form.
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

// hashOf returns what is stored of a token of the form.
func (l *legacy) hashOf(token string) Hash {
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

// storedDigest returns the hash that is stored for an imported digest. It differs from the hash
// of every token that this package makes, and does not depend on the kind: a value must be found
// once, or it could be a key of two accounts.
func storedDigest(digest [sha256.Size]byte) Hash {
	return Hash{Sum: sha256.Sum256(append([]byte("storageapi imported key\x00"), digest[:]...))}
}

// hashes returns what may be stored of token: nothing if it has no known form.
func (s *KeyService) hashes(token string, buf *[1 + maxLegacy]Hash) []Hash {
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

// Credential returns the Credential of a value that was verified as p, also of one that was
// imported, which takes a store read.
func (s *KeyService) Credential(ctx context.Context, token string, p auth.Principal) auth.Credential {
	credential := s.credential(ctx, token, p)
	credential.Limited = s.canManage(&Key{Scopes: p.Scopes, ExpiresAt: p.ExpiresAt}) != nil
	return credential
}

func (s *KeyService) credential(ctx context.Context, token string, p auth.Principal) auth.Credential {
	var buf [1 + maxLegacy]Hash
	hashes := s.hashes(token, &buf)
	switch len(hashes) {
	case 0: // it would not have been verified
		return CredentialOf(token, p)
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
	return auth.NewCredential(p.KeyID, hashes[0].Sum, p.Replaced) // the step finds out what has changed
}
