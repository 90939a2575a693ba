package signing

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32 // of a new secret

	// The limits of Standard Webhooks.
	minSecretBytes = 24
	maxSecretBytes = 64
)

const redacted = "[redacted]"

// ErrSecret is wrapped by the error for a malformed or missing secret. Such an error contains no
// part of the secret's text.
var ErrSecret = errors.New("signing: unusable secret")

// Secret is the signing secret of a webhook, shared with its receiver: "whsec_" and the standard
// base64, with padding, of 24 to 64 bytes (Standard Webhooks, "Symmetric secrets").
//
// The zero Secret signs and verifies nothing.
//
// A Secret prints, marshals and logs as "[redacted]"; only [Secret.Reveal] returns its text. Copy
// and pass it by value, and compare it with [Secret.Equal]. It is safe for concurrent use.
type Secret struct {
	// open is a function because other values can be printed: fmt does not call the methods of
	// unexported fields, and diffs in tests follow pointers. It also prevents the use of ==.
	open func() *material
}

// material is the hidden content of a Secret.
type material struct {
	key    []byte // the bytes that the text encodes
	keying sync.Once
	macs   *macs // nil until the secret first signs or verifies, since many secrets are only stored and listed

	private atomic.Pointer[ed25519.PrivateKey] // nil until the secret is first used for v1a
}

// NewSecret returns a new secret of 32 random bytes from the system's generator. It cannot fail.
func NewSecret() Secret {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // never returns an error; crashes the program if there is no randomness
	return secretOf(key)
}

// ParseSecret parses s, which must have the exact form that [Secret.Reveal] returns. Each secret
// has only one valid text: white space, missing padding and the URL-safe base64 alphabet are
// rejected. The error wraps [ErrSecret].
func ParseSecret(s string) (Secret, error) {
	encoded, prefixed := strings.CutPrefix(s, secretPrefix)
	// Do not pass on a decoding error, since it reveals positions in the text. The decoder skips
	// line ends and ignores the spare bits of the last character, so also compare the text.
	key, err := base64.StdEncoding.DecodeString(encoded)
	var again [(maxSecretBytes + 2) / 3 * 4]byte
	if !prefixed || err != nil || len(key) < minSecretBytes || len(key) > maxSecretBytes ||
		string(base64.StdEncoding.AppendEncode(again[:0], key)) != encoded {
		return Secret{}, fmt.Errorf("%w: want %q followed by the padded standard base64 of %d to %d bytes",
			ErrSecret, secretPrefix, minSecretBytes, maxSecretBytes)
	}
	return secretOf(key), nil
}

// secretOf returns the secret with the given key, which it retains.
func secretOf(key []byte) Secret {
	m := &material{key: key}
	return Secret{open: func() *material { return m }}
}

// Reveal returns the text of the secret, or "" for the zero Secret. Use it only in the one response
// that shows a new secret to its owner, and in stores.
func (s Secret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	return string(s.appendText(nil))
}

func (s Secret) appendText(dst []byte) []byte {
	return base64.StdEncoding.AppendEncode(append(dst, secretPrefix...), s.open().key)
}

// keyed returns the macs of s, which must not be zero.
func (s Secret) keyed() *macs {
	m := s.open()
	m.keying.Do(func() {
		w := getWorkspace()
		defer putWorkspace(w)
		w.buf = s.appendText(w.buf[:0])
		m.macs = &macs{service: w.newMAC(w.buf), standard: w.newMAC(m.key)}
	})
	return m.macs
}

// IsZero reports whether s is the zero Secret.
func (s Secret) IsZero() bool { return s.open == nil }

// Equal reports whether s and other are the same secret. Its run time does not depend on where
// they differ. Two zero Secrets are equal. reflect.DeepEqual cannot compare secrets; go-cmp can,
// because it uses this method.
func (s Secret) Equal(other Secret) bool {
	if s.IsZero() || other.IsZero() {
		return s.IsZero() && other.IsZero()
	}
	return subtle.ConstantTimeCompare(s.open().key, other.open().key) == 1
}

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// Format implements [fmt.Formatter]. It writes "[redacted]" for any verb and flags.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText implements [encoding.TextMarshaler], and thus JSON and XML: "[redacted]". This cannot
// be reversed; use [ParseSecret] to read a secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements [slog.LogValuer]. It returns "[redacted]".
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
