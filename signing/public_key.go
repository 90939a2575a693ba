package signing

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

const publicPrefix = "whpk_"

// ErrPublicKey is wrapped by the error for a malformed public key.
var ErrPublicKey = errors.New("signing: unusable public key")

// A PublicKey verifies signatures of the scheme [V1a]. Unlike a [Secret], it cannot make signatures
// and need not be kept secret. Public keys can be compared with ==. The zero PublicKey verifies
// nothing.
type PublicKey struct {
	set bool
	key [ed25519.PublicKeySize]byte
}

// PublicKey returns the public key for v1a signatures made with the secret, which must not be zero.
// The key pair is derived from the secret (HKDF, RFC 5869), so it is replaced when the secret is
// rotated. A receiver that has the secret can make v1a signatures, too. A secret must be random,
// because anyone with its public key can check guesses of the secret.
func (s Secret) PublicKey() PublicKey {
	mustNotBeZero(s)
	k := PublicKey{set: true}
	copy(k.key[:], s.privateKey().Public().(ed25519.PublicKey))
	return k
}

// privateKey returns the key for v1a signatures of s, which must not be zero.
func (s Secret) privateKey() ed25519.PrivateKey {
	m := s.open()
	if private := m.private.Load(); private != nil {
		return *private
	}
	// v1 uses the same bytes as the key of an HMAC. HKDF makes the two keys independent.
	seed, err := hkdf.Key(sha256.New, m.key, nil, "storageapi webhooks v1a ed25519", ed25519.SeedSize)
	if err != nil {
		panic("signing: " + err.Error()) // cannot happen: the seed is short
	}
	private := ed25519.NewKeyFromSeed(seed)
	m.private.Store(&private)
	return private
}

// ParsePublicKey returns the key with the text s: "whpk_" and the padded standard base64 of 32
// bytes (Standard Webhooks, "Asymmetric keys"). The error wraps [ErrPublicKey]. ParsePublicKey
// refuses a secret, and [ParseSecret] refuses a public key, so that neither can be mistaken for the
// other.
func ParsePublicKey(s string) (PublicKey, error) {
	encoded, prefixed := strings.CutPrefix(s, publicPrefix)
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	k := PublicKey{set: true}
	if copy(k.key[:], key); !prefixed || err != nil || len(key) != len(k.key) || k.String() != s {
		return PublicKey{}, fmt.Errorf("%w: want %q followed by the padded standard base64 of %d bytes", ErrPublicKey, publicPrefix, len(k.key))
	}
	return k, nil
}

// IsZero reports whether k is the zero PublicKey.
func (k PublicKey) IsZero() bool { return !k.set }

// String returns the text of the key, or "" for the zero PublicKey.
func (k PublicKey) String() string {
	if k.IsZero() {
		return ""
	}
	return publicPrefix + base64.StdEncoding.EncodeToString(k.key[:])
}

// MarshalText implements [encoding.TextMarshaler], and thus JSON. It returns the text of the key.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// ID returns the "kid" of the key in [JWKS], its thumbprint (RFC 7638).
func (k PublicKey) ID() string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + k.encoded() + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (k PublicKey) encoded() string { return base64.RawURLEncoding.EncodeToString(k.key[:]) }

// JWKS returns the keys as a JSON Web Key Set (RFC 7517, RFC 8037).
func JWKS(keys ...PublicKey) []byte {
	type jwk struct {
		Type      string `json:"kty"`
		Curve     string `json:"crv"`
		Algorithm string `json:"alg"`
		Use       string `json:"use"`
		ID        string `json:"kid"`
		X         string `json:"x"`
	}
	set := struct {
		Keys []jwk `json:"keys"`
	}{make([]jwk, 0, len(keys))}
	for _, k := range keys {
		set.Keys = append(set.Keys, jwk{"OKP", "Ed25519", "EdDSA", "sig", k.ID(), k.encoded()})
	}
	text, _ := json.Marshal(set) // cannot fail: it holds only texts
	return text
}

// madeV1a reports whether e contains a v1a signature of ID, timestamp and body that one of the
// keys verifies.
func (w *workspace) madeV1a(e encoded, keys []PublicKey, body []byte) bool {
	w.buf = append(appendPrefix(w.buf[:0], e.id, e.timestamp), body...)
	list := e.standard
	for tried := 0; tried < maxV1a; {
		item, rest, more := strings.Cut(list, " ")
		if text, ok := strings.CutPrefix(strings.TrimSpace(item), "v1a,"); ok {
			tried++
			signature, err := base64.StdEncoding.Strict().DecodeString(text)
			for _, k := range keys {
				if err == nil && ed25519.Verify(k.key[:], w.buf, signature) {
					return true
				}
			}
		}
		if !more {
			break
		}
		list = rest
	}
	return false
}
