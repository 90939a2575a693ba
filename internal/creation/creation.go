// Package creation says on what terms stores create keys and webhooks: up to how
// many, and how a request that is made again is known.
package creation

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/storageapi/storageapi/internal/invalid"
)

// RequestLifetime is how long a request is known.
const RequestLifetime = 24 * time.Hour

// Terms are what a store heeds when it creates something. The zero Terms ask for
// nothing.
type Terms struct {
	// Limit is how many of its kind the account may have in the end; 0: any
	// number.
	Limit int

	// Request is what the client calls its request: 1 to 128 bytes, unique to
	// the account and the kind. Empty: it is not to be known again, and the rest
	// means nothing.
	Request  string
	Sum      Sum           // of what is asked for
	Lifetime time.Duration // older requests, by the store's clock, are forgotten
}

// A Sum stands for what a request asks for.
type Sum [sha256.Size]byte

// SumOf returns the Sum of the parts, in their order.
func SumOf(parts ...string) (sum Sum) {
	h := sha256.New()
	for _, part := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	h.Sum(sum[:0])
	return sum
}

// TermsOf returns the terms of a request that asks for what has that sum. A limit
// that is negative is none.
func TermsOf(limit int, request string, sum Sum) Terms {
	return Terms{max(limit, 0), request, sum, RequestLifetime}
}

// Repeated is the error of a store that the request was made before.
type Repeated struct {
	ID  string // of what it made
	Sum Sum    // of what it asked for
}

func (*Repeated) Error() string { return "this request was made before" }

// A LimitError says that an account has as many as it may have. It wraps the
// store's error that says so.
type LimitError struct {
	Err   error
	Limit int
	What  string // they are, in the plural
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("%v: an account may have at most %d %s", e.Err, e.Limit, e.What)
}

func (e *LimitError) Unwrap() error { return e.Err }

// CheckRequest checks what a client calls its request. Empty is fine.
func CheckRequest(name string) error {
	outside := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(name) > 128 || strings.ContainsFunc(name, outside) {
		return invalid.Field("Idempotency-Key", "must be 1 to 128 visible ASCII characters")
	}
	return nil
}
