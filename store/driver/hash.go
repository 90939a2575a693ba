package driver

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
)

// A Hash is the SHA-256 of a token's whole text. Only the hash and the hint of a token are stored.
// (A token has 190 random bits, so a fast hash without salt is as good as a slow one.) A Hash
// prints, marshals and logs as "[redacted]".
type Hash struct {
	redacted
	Sum [sha256.Size]byte
}

// Equal reports whether h and other are equal; go-cmp uses it.
func (h Hash) Equal(other Hash) bool { return h == other }

// IsZero reports whether h is the zero Hash, which no token has.
func (h Hash) IsZero() bool { return h == Hash{} }

// redacted makes a type print, marshal and log as "[redacted]".
type redacted struct{}

const redactedText = "[redacted]"

func (redacted) String() string               { return redactedText }
func (redacted) GoString() string             { return redactedText }
func (redacted) Format(f fmt.State, _ rune)   { _, _ = f.Write([]byte(redactedText)) }
func (redacted) MarshalText() ([]byte, error) { return []byte(redactedText), nil }
func (redacted) MarshalJSON() ([]byte, error) { return []byte(`"` + redactedText + `"`), nil }
func (redacted) LogValue() slog.Value         { return slog.StringValue(redactedText) }
