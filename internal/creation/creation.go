// Package creation says on what terms stores create keys and webhooks: up to how
// many, and how a request that is made again is known.
package creation

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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

	// MaxRequests is how many requests of the account, of that kind, may be known at a
	// time, this one included; 0: any number.
	MaxRequests int

	// By is the value of an API key that asks for it. The zero By is none: the host
	// does.
	By Caller
}

// ErrCaller is returned by a store that was asked By a value that is not what it was.
var ErrCaller = errors.New("the API key that asks for this was rotated or deleted meanwhile")

// ErrRequests is returned by a store where an account has made MaxRequests.
var ErrRequests = errors.New("too many idempotency keys in use")

// A Caller is the value of an API key as it was verified: its key's value, or the one
// before a rotation. It prints as "[redacted]".
type Caller struct {
	KeyID    string
	hash     [sha256.Size]byte
	replaced bool
}

// NewCaller returns the Caller of a value by its SHA-256. One that was not replaced is
// no Caller any more once it is.
func NewCaller(keyID string, hash [sha256.Size]byte, replaced bool) Caller {
	return Caller{keyID, hash, replaced}
}

// IsZero reports whether c is none.
func (c Caller) IsZero() bool { return c == Caller{} }

// Is reports whether c is still what it was, where its key has these hashes now.
func (c Caller) Is(current, previous [sha256.Size]byte) bool {
	if c.replaced {
		return c.hash == previous
	}
	return c.hash == current
}

// Format prints nothing of a Caller: a hash can be as good as its value to a store.
func (c Caller) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

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
// that is negative is none. Who deletes what it creates can create on: so ten times as
// many requests may be known as things may be there.
func TermsOf(limit int, request string, sum Sum) Terms {
	return Terms{Limit: max(limit, 0), Request: request, Sum: sum, Lifetime: RequestLifetime, MaxRequests: min(max(limit, 0), math.MaxInt/10) * 10}
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
