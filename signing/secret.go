package signing

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

const (
	secretPrefix = "whsec_"
	secretBytes  = 32 // of a new secret

	// What Standard Webhooks allows.
	minSecretBytes = 24
	maxSecretBytes = 64
)

const redacted = "[redacted]"

// ErrSecret is wrapped by the error for a secret that is malformed or missing. No such error holds the secret's text,
// or any part of it.
var ErrSecret = errors.New("signing: unusable secret")

// Secret is the signing secret of a webhook, shared with its receiver: "whsec_" and the standard base64, with
// padding, of 24 to 64 bytes (Standard Webhooks, "Symmetric secrets").
//
// The zero Secret is no secret: it signs and verifies nothing.
//
// A Secret prints, marshals and logs as "[redacted]"; [Secret.Reveal] is the only way to its text. It is a value to
// copy and pass around, compared with [Secret.Equal], safe for concurrent use.
type Secret struct {
	// A function, because everything else can be looked into: fmt does not call the methods of unexported fields, and
	// what prints a difference between two values in tests follows pointers too. It also makes == not compile.
	open func() *material
}

// material is what a Secret hides.
type material struct {
	key    []byte // what the text encodes
	keying sync.Once
	macs   *macs // nil until the secret first signs or verifies: many secrets are only stored and listed
}

// NewSecret returns a new secret of 32 random bytes from the system's generator, and cannot fail.
func NewSecret() Secret {
	key := make([]byte, secretBytes)
	_, _ = rand.Read(key) // never returns an error; ends the program when there is no randomness
	return secretOf(key)
}

// ParseSecret returns the secret whose text is s, exactly as [Secret.Reveal] shows it. There is one text per key: white
// space, missing padding, and the URL alphabet of base64 are refused. The error wraps [ErrSecret].
func ParseSecret(s string) (Secret, error) {
	encoded, prefixed := strings.CutPrefix(s, secretPrefix)
	// A decoding error is not passed on, since it says where the text is wrong. The decoder skips line ends, and
	// ignores the spare bits of the last character: hence the comparison.
	key, err := base64.StdEncoding.DecodeString(encoded)
	var again [(maxSecretBytes + 2) / 3 * 4]byte
	if !prefixed || err != nil || len(key) < minSecretBytes || len(key) > maxSecretBytes ||
		string(base64.StdEncoding.AppendEncode(again[:0], key)) != encoded {
		return Secret{}, fmt.Errorf("%w: want %q followed by the padded standard base64 of %d to %d bytes",
			ErrSecret, secretPrefix, minSecretBytes, maxSecretBytes)
	}
	return secretOf(key), nil
}

// secretOf returns the secret with the given key, which it keeps.
func secretOf(key []byte) Secret {
	m := &material{key: key}
	return Secret{open: func() *material { return m }}
}

// Reveal returns the text of the secret, or "" for the zero Secret. It is meant for two places: the response that
// shows a secret to its owner once, and the store that keeps it.
func (s Secret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	return string(s.appendText(nil))
}

func (s Secret) appendText(dst []byte) []byte {
	return base64.StdEncoding.AppendEncode(append(dst, secretPrefix...), s.open().key)
}

// keyed returns what signs and verifies with s, which must not be zero.
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

// Equal reports whether s and other are the same secret, in a time that does not depend on where they differ. Two zero
// Secrets are equal. (reflect.DeepEqual cannot compare secrets; go-cmp can, through this method.)
func (s Secret) Equal(other Secret) bool {
	if s.IsZero() || other.IsZero() {
		return s.IsZero() && other.IsZero()
	}
	return subtle.ConstantTimeCompare(s.open().key, other.open().key) == 1
}

// String returns "[redacted]".
func (Secret) String() string { return redacted }

// Format implements [fmt.Formatter]: "[redacted]", with any verb and flags.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText implements [encoding.TextMarshaler], and so decides what JSON and XML show: "[redacted]". There is no
// way back from that; a secret is read with [ParseSecret].
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements [slog.LogValuer]: "[redacted]".
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
