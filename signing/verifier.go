package signing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	defaultTolerance = 5 * time.Minute // what the Standard Webhooks libraries allow
	defaultMaxBody   = 1 << 20
)

// What [Verifier.Verify] returns wraps one of these. The text of the error is for the receiver's log; telling the sender
// helps only a forger.
var (
	// ErrSignature: a header is missing, repeated or malformed, or no live secret made a signature.
	ErrSignature = errors.New("signing: no valid signature")

	// ErrTimestamp: the timestamp is malformed, or further from now than the tolerance.
	ErrTimestamp = errors.New("signing: timestamp outside the tolerance")
)

// VerifierConfig says how a receiver verifies. Only Secrets has no default.
type VerifierConfig struct {
	// Secrets are the live secrets of the webhook, 1 to 16: usually one, two during a rotation.
	Secrets []Secret

	// Header is where the signature of the body is. "" is [DefaultHeader].
	Header string

	// Tolerance is how far the timestamp of a request may lie in the past, and in the future. 0 is 5 minutes.
	Tolerance time.Duration

	// MaxBody is how many bytes of body [Verifier.Handler] reads at most. 0 is 1 MiB.
	MaxBody int64

	// Now tells the time. nil is [time.Now].
	Now func() time.Time
}

// Verifier verifies the requests that one webhook receives. It is safe for concurrent use.
type Verifier struct {
	header    string
	secrets   []Secret
	tolerance time.Duration
	maxBody   int64
	now       func() time.Time
}

// NewVerifier returns a verifier. The error wraps [ErrSecret] if there is no secret, or a zero one, or too many, and
// [ErrConfig] if Header cannot name the header, or Tolerance or MaxBody is negative.
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
		return nil, fmt.Errorf("%w: a negative tolerance or body size", ErrConfig)
	}
	key, err := headerKey(config.Header)
	if err != nil {
		return nil, err
	}
	secrets, err := copyLive(config.Secrets)
	if err != nil {
		return nil, err
	}
	return &Verifier{key, secrets, config.Tolerance, config.MaxBody, config.Now}, nil
}

// Verify returns nil if a live secret signed body, and a live secret signed body together with the id and timestamp in
// h, at a time that is within the tolerance of now; see [Signer.Sign] for the two signatures. Both are wanted, lest an
// attacker drop the one that protects against replay. Otherwise the error wraps [ErrSignature] or [ErrTimestamp].
//
// The body is the bytes that arrived. The keys of h are canonical, as [http.Request] has them. Each of the four headers
// must be there once; the id must be a [ValidID], and the timestamp nothing but digits. Of several signatures in a
// header the first 16 are looked at; those of another version than v1 match nothing, and hex digits in upper case
// neither: a signature has one spelling. Signatures are compared in constant time.
func (v *Verifier) Verify(h http.Header, body []byte) error {
	e, err := v.open(h)
	if err != nil {
		return err
	}
	return v.check(e, body)
}

// encoded is what the headers of a request say about it.
type encoded struct{ id, timestamp, service, standard string }

// open returns what the headers say, if it is well-formed and fresh. It is cheap, and needs no body.
func (v *Verifier) open(h http.Header) (encoded, error) {
	var fields [4]string
	for i, name := range [...]string{HeaderID, HeaderTimestamp, v.header, HeaderSignature} {
		values := h[name]
		if len(values) != 1 {
			return encoded{}, fmt.Errorf("%w: want one %s header, have %d", ErrSignature, name, len(values))
		}
		fields[i] = values[0]
	}
	e := encoded{id: fields[0], timestamp: fields[1], service: fields[2], standard: fields[3]}
	if !ValidID(e.id) {
		return encoded{}, fmt.Errorf("%w: malformed %s", ErrSignature, HeaderID)
	}
	// 40 bits last until the year 36812, and leave time.Unix nothing to overflow with.
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

// check returns an error unless the signatures in e are signatures of body.
func (v *Verifier) check(e encoded, body []byte) error {
	w := getWorkspace()
	defer putWorkspace(w)
	if !w.madeService(e.service, v.secrets, body) {
		return fmt.Errorf("%w: %s matches no secret", ErrSignature, v.header)
	}
	if !w.madeStandard(e, v.secrets, body) {
		return fmt.Errorf("%w: %s matches no secret", ErrSignature, HeaderSignature)
	}
	return nil
}

// madeService reports whether one of the secrets made one of the listed signatures of body.
func (w *workspace) madeService(list string, secrets []Secret, body []byte) bool {
	for _, secret := range secrets {
		w.buf = w.appendService(w.buf[:0], secret.keyed(), body)
		if contains(list, ",", w.buf) {
			return true
		}
	}
	return false
}

// madeStandard reports whether one of the secrets made one of the encoded's signatures of id, timestamp and body.
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

// contains reports whether signature is one of the first maxSignatures items of list. Each item is
// compared in constant time.
func contains(list, separator string, signature []byte) bool {
	if equal(list, signature) {
		return true // alone, as it mostly is
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

// equal reports whether a and b are the same, in a time that depends on their lengths only. It is subtle.ConstantTimeCompare
// by eight bytes at a time, which takes a fifth of its time.
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
