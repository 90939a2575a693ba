package signing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	defaultTolerance = 5 * time.Minute // as in the Standard Webhooks libraries
	defaultMaxBody   = 1 << 20
)

// The errors of [Verifier.Verify] wrap one of these. Their text is for the receiver's log. Do not
// put it into a response, where it would help only forgers.
var (
	// ErrSignature means that a header is missing, repeated or malformed, or that the signature was
	// not made with a live secret or for a live public key.
	ErrSignature = errors.New("signing: no valid signature")

	// ErrTimestamp means that the timestamp is malformed, or differs from the current time by more
	// than the tolerance.
	ErrTimestamp = errors.New("signing: timestamp outside the tolerance")
)

// VerifierConfig configures a [Verifier]. Secrets, PublicKeys or both are required.
type VerifierConfig struct {
	// Secrets are the live secrets of the webhook, at most 16: usually one, two during a rotation.
	Secrets []Secret

	// PublicKeys are the live public keys of the webhook, at most 4, if it signs with [V1a]. With
	// Secrets and PublicKeys, the signatures of one scheme suffice.
	PublicKeys []PublicKey

	// Header is the header with the signature of the body. "" is [DefaultHeader].
	Header string

	// Tolerance is the maximum difference between the timestamp of a request and the current time,
	// in either direction. 0 is 5 minutes.
	Tolerance time.Duration

	// MaxBody is the maximum size of a body that [Verifier.Handler] reads, in bytes. 0 is 1 MiB.
	MaxBody int64

	// Now returns the current time. nil is [time.Now].
	Now func() time.Time
}

// Verifier verifies the requests to one webhook. It is safe for concurrent use.
type Verifier struct {
	header    string
	secrets   []Secret
	keys      []PublicKey
	tolerance time.Duration
	maxBody   int64
	now       func() time.Time
}

// NewVerifier returns a verifier. The error wraps [ErrSecret] if there is neither a secret nor a
// public key, if a secret is zero, or if there are too many. It wraps [ErrPublicKey] if a public
// key is zero or there are too many, and [ErrConfig] if Header is not a valid header name, or if
// Tolerance or MaxBody is negative.
func NewVerifier(config VerifierConfig) (*Verifier, error) {
	if config.Tolerance == 0 {
		config.Tolerance = defaultTolerance
	}
	if config.MaxBody == 0 {
		config.MaxBody = defaultMaxBody
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Tolerance < 0 || config.MaxBody < 0 {
		return nil, fmt.Errorf("%w: negative Tolerance or MaxBody", ErrConfig)
	}
	key, err := headerKey(config.Header)
	if err != nil {
		return nil, err
	}
	var secrets []Secret
	if len(config.Secrets) > 0 || len(config.PublicKeys) == 0 {
		if secrets, err = copyLive(config.Secrets); err != nil {
			return nil, err
		}
	}
	if len(config.PublicKeys) > maxV1a || slices.Contains(config.PublicKeys, PublicKey{}) {
		return nil, fmt.Errorf("%w: got a zero PublicKey, or more than %d", ErrPublicKey, maxV1a)
	}
	return &Verifier{key, secrets, slices.Clone(config.PublicKeys), config.Tolerance, config.MaxBody, config.Now}, nil
}

// Verify returns nil if both signatures were made with live secrets, and the timestamp is within
// the tolerance. The first signature covers body, and the second covers body with the ID and
// timestamp in h; see [Signer.Sign]. Verify requires both, so that an attacker cannot remove the
// signature that protects against replay. One [V1a] signature that a live public key verifies can
// replace both, since it covers the body, the ID and the timestamp. Otherwise the error wraps
// [ErrSignature] or [ErrTimestamp].
//
// The body must be the bytes as received. The keys of h must be canonical, as in [http.Request].
// Each of the four headers must occur exactly once, except that a verifier with public keys does not
// need the signature of body alone; the ID must satisfy [ValidID], and the timestamp must consist of
// digits. Verify checks at most the first 16 signatures in each header, and the first 4 by [V1a]. It
// rejects signatures of unknown versions, and hex digits in upper case, since each signature has
// only one valid encoding. It compares signatures in constant time.
func (v *Verifier) Verify(h http.Header, body []byte) error {
	e, err := v.open(h)
	if err != nil {
		return err
	}
	return v.check(e, body)
}

// encoded holds the relevant headers of a request.
type encoded struct{ id, timestamp, service, standard string }

// open returns the headers of a request if they are well-formed and fresh. It is cheap and does
// not need the body.
func (v *Verifier) open(h http.Header) (encoded, error) {
	var fields [4]string
	for i, name := range [...]string{HeaderID, HeaderTimestamp, v.header, HeaderSignature} {
		values := h[name]
		if len(values) == 0 && name == v.header && len(v.keys) > 0 {
			continue // belongs to V1
		}
		if len(values) != 1 {
			return encoded{}, fmt.Errorf("%w: want one %s header, got %d", ErrSignature, name, len(values))
		}
		fields[i] = values[0]
	}
	e := encoded{id: fields[0], timestamp: fields[1], service: fields[2], standard: fields[3]}
	if !ValidID(e.id) {
		return encoded{}, fmt.Errorf("%w: malformed %s", ErrSignature, HeaderID)
	}
	// 40 bits are enough until the year 36812, and cannot overflow time.Unix.
	seconds, err := strconv.ParseUint(e.timestamp, 10, 40)
	if err != nil {
		return encoded{}, fmt.Errorf("%w: malformed %s", ErrTimestamp, HeaderTimestamp)
	}
	age := v.now().Sub(time.Unix(int64(seconds), 0)) // saturates
	if age > v.tolerance || age < -v.tolerance {
		return encoded{}, fmt.Errorf("%w: off by %v", ErrTimestamp, age)
	}
	return e, nil
}

// check returns an error unless e contains a valid v1a signature of body, or both other signatures
// are valid.
func (v *Verifier) check(e encoded, body []byte) error {
	w := getWorkspace()
	defer putWorkspace(w)
	if len(v.keys) > 0 && w.madeV1a(e, v.keys, body) {
		return nil
	}
	if len(v.secrets) == 0 {
		return fmt.Errorf("%w: %s matches no public key", ErrSignature, HeaderSignature)
	}
	if !w.madeService(e.service, v.secrets, body) {
		return fmt.Errorf("%w: %s matches no secret", ErrSignature, v.header)
	}
	if !w.madeStandard(e, v.secrets, body) {
		return fmt.Errorf("%w: %s matches no secret", ErrSignature, HeaderSignature)
	}
	return nil
}

// madeService reports whether the list contains a signature of body made with one of the secrets.
func (w *workspace) madeService(list string, secrets []Secret, body []byte) bool {
	for _, secret := range secrets {
		w.buf = w.appendService(w.buf[:0], secret.keyed(), body)
		if contains(list, ",", w.buf) {
			return true
		}
	}
	return false
}

// madeStandard reports whether e contains a signature of ID, timestamp and body made with one of
// the secrets.
func (w *workspace) madeStandard(e encoded, secrets []Secret, body []byte) bool {
	b := appendPrefix(w.buf[:0], e.id, e.timestamp)
	prefix := len(b)
	for _, secret := range secrets {
		b = w.appendStandard(b[:prefix], secret.keyed(), b[:prefix], body)
		w.buf = b
		if contains(e.standard, " ", b[prefix:]) {
			return true
		}
	}
	return false
}

// contains reports whether signature is one of the first maxSignatures items of list. It compares
// each item in constant time.
func contains(list, separator string, signature []byte) bool {
	if equal(list, signature) {
		return true // the usual case: a single item
	}
	found := false
	for range maxSignatures {
		item, rest, more := strings.Cut(list, separator)
		if equal(strings.TrimSpace(item), signature) {
			found = true
		}
		if !more {
			break
		}
		list = rest
	}
	return found
}

// equal reports whether a and b are equal, in a time that depends only on their lengths. It
// compares eight bytes at a time, and so takes a fifth of the time of subtle.ConstantTimeCompare.
func equal(a string, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	x := []byte(a)
	var difference uint64
	for len(x) >= 8 && len(b) >= 8 {
		difference |= binary.NativeEndian.Uint64(x) ^ binary.NativeEndian.Uint64(b)
		x, b = x[8:], b[8:]
	}
	for i := range x {
		difference |= uint64(x[i] ^ b[i])
	}
	return difference == 0
}
