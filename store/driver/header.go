package driver

import (
	"fmt"
	"io"
)

// A Header is a header field that all requests to a webhook carry. A secret Header prints and
// marshals without its value.
type Header struct {
	Name   string // in the form of http.CanonicalHeaderKey
	Value  string
	Secret bool // stores keep the value like a signing secret, and no method shows it
}

func (h Header) text() string {
	if h.Secret {
		return h.Name + ": [redacted]"
	}
	return h.Name + ": " + h.Value
}

// Format implements [fmt.Formatter], with any verb and flags.
func (h Header) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, h.text()) }

// MarshalText implements [encoding.TextMarshaler], and thus JSON.
func (h Header) MarshalText() ([]byte, error) { return []byte(h.text()), nil }
