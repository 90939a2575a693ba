package signing

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrConfig is wrapped by the error for an invalid header name, scheme, tolerance, size or key.
var ErrConfig = errors.New("signing: invalid configuration")

// DefaultHeader is the default header for the signature of the body (docs/spec.md, section 6).
const DefaultHeader = "X-Service-Signature"

// The headers of Standard Webhooks v1, as [http.Header] spells them.
const (
	HeaderID        = "Webhook-Id"        // the event's ID, the same on every retry
	HeaderTimestamp = "Webhook-Timestamp" // when the request was signed: seconds since 1970 in decimal
	HeaderSignature = "Webhook-Signature" // "v1,…" or "v1a,…" in base64 for each scheme and live secret, separated by spaces
)

// A Scheme is a way to sign requests, with its name in [HeaderSignature].
type Scheme string

// The schemes of Standard Webhooks.
const (
	// V1 signs with HMAC-SHA256 and a secret that the receiver shares. The header for the signature
	// of the body belongs to it.
	V1 Scheme = "v1"

	// V1a signs with ed25519. The receiver needs only the [PublicKey]. A signature takes about 30 µs.
	V1a Scheme = "v1a"
)

const (
	maxIDLength   = 256
	maxSignatures = 16 // limit on secrets in use at a time, and on signatures checked in a header
	maxV1a        = 4  // the same for V1a, whose verification hashes the body once per key and signature
)

// ValidID reports whether id is valid for a signed message: 1 to 256 visible ASCII characters
// without a dot. Standard Webhooks puts a dot between the ID and the timestamp, so with dots in
// IDs two different messages could have the same signature.
func ValidID(id string) bool {
	if id == "" || len(id) > maxIDLength {
		return false
	}
	rest := []byte(id)
	for len(rest) >= 8 && validWord(binary.NativeEndian.Uint64(rest)) {
		rest = rest[8:]
	}
	for _, c := range rest {
		if c <= ' ' || c > '~' || c == '.' {
			return false
		}
	}
	return true
}

// validWord reports whether the eight bytes of x may be in an ID. Each addition and subtraction
// sets the highest bit of an invalid byte, and only an invalid byte carries into the next one.
func validWord(x uint64) bool {
	const each, highest = 0x0101010101010101, 0x8080808080808080
	notASCII := x
	tooLow := x - each*'!'
	tooHigh := x + each // only DEL remains
	dot := (x ^ each*'.') - each
	return (notASCII|tooLow|tooHigh|dot)&highest == 0
}

// Signer signs the requests to one webhook. It is safe for concurrent use. A Signer is cheap
// enough to make one for every request, because each [Secret] is keyed only once.
type Signer struct {
	header  string
	secrets []Secret
	v1, v1a bool
}

// NewSigner returns a signer that signs with each of 1 to 16 secrets: usually one, two during a
// rotation. header is the header for the signature of the body; "" is [DefaultHeader].
//
// The error wraps [ErrSecret] if there are no secrets or too many, or if one is zero. It wraps
// [ErrConfig] if header is not a valid header name or is one of the headers of Standard Webhooks.
func NewSigner(header string, secrets ...Secret) (*Signer, error) {
	key, err := headerKey(header)
	if err != nil {
		return nil, err
	}
	live, err := copyLive(secrets)
	if err != nil {
		return nil, err
	}
	return &Signer{header: key, secrets: live, v1: true}, nil
}

// With returns a copy of s that signs with the schemes instead of only [V1]. The error wraps
// [ErrConfig] if there is no scheme or an unknown scheme, or if s has more than four secrets, which
// [V1a] does not allow.
func (s *Signer) With(schemes ...Scheme) (*Signer, error) {
	with := &Signer{header: s.header, secrets: s.secrets}
	for _, scheme := range schemes {
		switch scheme {
		case V1:
			with.v1 = true
		case V1a:
			if len(s.secrets) > maxV1a {
				return nil, fmt.Errorf("%w: got %d secrets, want at most %d with %s", ErrConfig, len(s.secrets), maxV1a, V1a)
			}
			with.v1a = true
		default:
			return nil, fmt.Errorf("%w: unknown scheme %q", ErrConfig, scheme)
		}
	}
	if len(schemes) == 0 {
		return nil, fmt.Errorf("%w: no scheme", ErrConfig)
	}
	return with, nil
}

// headerKey returns the key under which an [http.Header] holds the body's signature.
func headerKey(name string) (string, error) {
	if name == "" || name == DefaultHeader {
		return DefaultHeader, nil
	}
	key := http.CanonicalHeaderKey(name)
	if !isToken(name) || key == HeaderID || key == HeaderTimestamp || key == HeaderSignature {
		return "", fmt.Errorf("%w: %q is not a valid signature header name", ErrConfig, name)
	}
	return key, nil
}

// isToken reports whether s is a valid header name (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letterOrDigit := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letterOrDigit && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// copyLive returns a copy of secrets, or ErrSecret unless all of them can sign.
func copyLive(secrets []Secret) ([]Secret, error) {
	if len(secrets) == 0 || len(secrets) > maxSignatures {
		return nil, fmt.Errorf("%w: got %d secrets, want 1 to %d", ErrSecret, len(secrets), maxSignatures)
	}
	for _, secret := range secrets {
		if secret.IsZero() {
			return nil, fmt.Errorf("%w: zero Secret", ErrSecret)
		}
	}
	return append([]Secret(nil), secrets...), nil
}

// Sign signs body, which may be empty but must be sent unchanged, and sets the four headers in h,
// replacing existing values:
//
//   - X-Service-Signature, or the header given to [NewSigner]: the lower-case hex of HMAC-SHA256
//     (RFC 2104) of the body, keyed with the secret's text;
//   - Webhook-Id: id, which identifies the event and stays the same when it is resent;
//   - Webhook-Timestamp: at in whole seconds, the time of this attempt;
//   - Webhook-Signature: "v1," and the base64 of HMAC-SHA256 of "id.timestamp.body", keyed with the
//     bytes that the secret encodes (Standard Webhooks, "Signature scheme").
//
// With several secrets the values are in the secrets' order, separated by commas in the first
// header and by spaces in the last.
//
// With [V1a], see [Signer.With], Sign also adds "v1a," and the base64 of the ed25519 signature of
// "id.timestamp.body" to Webhook-Signature, for each secret. Without [V1], it removes the first
// header from h.
//
// Sign panics if id is not a [ValidID]: validate IDs from other sources first.
func (s *Signer) Sign(h http.Header, id string, at time.Time, body []byte) {
	if !ValidID(id) {
		panic("signing: invalid message id")
	}
	if s.v1 {
		s.signV1(h, id, at, body)
	}
	if s.v1a {
		s.signV1a(h, id, at, body)
	}
}

// signV1a adds v1a signatures to the header, after any v1 signatures that signV1 has set.
func (s *Signer) signV1a(h http.Header, id string, at time.Time, body []byte) {
	w := getWorkspace()
	defer putWorkspace(w)
	timestamp := strconv.FormatInt(at.Unix(), 10)
	w.buf = append(appendPrefix(w.buf[:0], id, timestamp), body...)
	var signatures []byte
	if s.v1 {
		signatures = append(signatures, h[HeaderSignature][0]...)
	} else {
		h[HeaderID], h[HeaderTimestamp] = []string{id}, []string{timestamp}
		delete(h, s.header)
	}
	for _, secret := range s.secrets {
		if len(signatures) > 0 {
			signatures = append(signatures, ' ')
		}
		signatures = append(signatures, "v1a,"...)
		signatures = base64.StdEncoding.AppendEncode(signatures, ed25519.Sign(secret.privateKey(), w.buf))
	}
	h[HeaderSignature] = []string{string(signatures)}
}

func (s *Signer) signV1(h http.Header, id string, at time.Time, body []byte) {
	w := getWorkspace()
	defer putWorkspace(w)
	if second := at.Unix(); w.timestamp == "" || w.second != second {
		w.second, w.timestamp = second, strconv.FormatInt(second, 10)
	}

	// One buffer, converted to one string, holds all results: the prefix "id.timestamp.", the
	// signatures keyed with the secrets' text, and the signatures keyed with the secrets' bytes.
	b := appendPrefix(w.buf[:0], id, w.timestamp)
	prefix := len(b)
	for i, secret := range s.secrets {
		if i > 0 {
			b = append(b, ',')
		}
		b = w.appendService(b, secret.keyed(), body)
	}
	service := len(b)
	for i, secret := range s.secrets {
		if i > 0 {
			b = append(b, ' ')
		}
		b = w.appendStandard(b, secret.keyed(), b[:prefix], body)
	}
	w.buf = b

	text := string(b[prefix:])
	service -= prefix
	if len(w.values) == 0 {
		w.values = make([]string, 4*16)
	}
	values := w.values[:4]
	w.values = w.values[4:]
	values[0], values[1], values[2], values[3] = id, w.timestamp, text[:service], text[service:]
	h[HeaderID] = values[0:1:1]
	h[HeaderTimestamp] = values[1:2:2]
	h[s.header] = values[2:3:3]
	h[HeaderSignature] = values[3:4:4]
}

// appendPrefix appends the bytes that Standard Webhooks signs before the body.
func appendPrefix(dst []byte, id, timestamp string) []byte {
	dst = append(dst, id...)
	dst = append(dst, '.')
	dst = append(dst, timestamp...)
	return append(dst, '.')
}
