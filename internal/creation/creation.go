// Package creation says on what options stores create keys and webhooks: up to how
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

// IdempotencyTTL is how long a request is known.
const IdempotencyTTL = 24 * time.Hour

// CreateOptions are what a store heeds when it creates something. The zero CreateOptions ask for
// nothing.
type CreateOptions struct {
	// MaxCount is how many of its kind the account may have in the end; 0: any
	// number.
	MaxCount int

	// IdempotencyKey is what the client calls its request: 1 to 128 bytes, unique to
	// the account and the kind. Empty: the request is not remembered, and the three
	// fields that follow mean nothing.
	IdempotencyKey string
	Fingerprint    Fingerprint   // of what is asked for
	IdempotencyTTL time.Duration // older keys, by the store's clock, are forgotten

	// MaxIdempotencyKeys is how many idempotency keys the account may have in use for
	// that kind, this one included; 0: any number.
	MaxIdempotencyKeys int

	// By is the value of an API key that asks for it. The zero By is none: the host
	// does.
	By Caller
}

// ErrCaller is returned by a store that was asked By a value that is not what it was.
var ErrCaller = errors.New("the API key that asks for this was rotated or deleted meanwhile")

// ErrIdempotencyKeys is returned by a store where an account has made MaxRequests.
var ErrIdempotencyKeys = errors.New("too many idempotency keys in use")

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

// A Fingerprint stands for what a request asks for.
type Fingerprint [sha256.Size]byte

// FingerprintOf returns the Fingerprint of the parts, in their order.
func FingerprintOf(parts ...string) (sum Fingerprint) {
	h := sha256.New()
	for _, part := range parts {
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	h.Sum(sum[:0])
	return sum
}

// OptionsOf returns the options of a request that asks for what has that sum. A limit
// that is negative is none. Who deletes what it creates can create on: so ten times as
// many requests may be known as things may be there.
func OptionsOf(limit int, request string, fingerprint Fingerprint) CreateOptions {
	return CreateOptions{MaxCount: max(limit, 0), IdempotencyKey: request, Fingerprint: fingerprint, IdempotencyTTL: IdempotencyTTL, MaxIdempotencyKeys: min(max(limit, 0), math.MaxInt/10) * 10}
}

// DuplicateRequestError is the error of a store that the request was made before.
type DuplicateRequestError struct {
	ID          string      // of what it made
	Fingerprint Fingerprint // of what it asked for
}

func (*DuplicateRequestError) Error() string { return "this request was made before" }

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
