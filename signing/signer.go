package signing

import (
	"net/http"
	"strconv"
	"time"
)

// DefaultHeader is the header that carries the signature of the body (SPEC, section 6) unless the host named another.
const DefaultHeader = "X-Service-Signature"

// The headers of Standard Webhooks v1, as [http.Header] spells them.
const (
	HeaderID        = "Webhook-Id"        // the event's id, the same on every retry
	HeaderTimestamp = "Webhook-Timestamp" // when the request was signed: seconds since 1970 in decimal
	HeaderSignature = "Webhook-Signature" // "v1," and base64, once per live secret, separated by spaces
)

const maxIDLength = 256

// ValidID reports whether id can be the id of a signed message: 1 to 256 visible ASCII characters, none of them a dot.
// (The dot separates the id from the timestamp in what Standard Webhooks signs. With dots in an id, two different
// messages could have one signature.)
func ValidID(id string) bool {
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' || c == '.' {
			return false
		}
	}
	return id != "" && len(id) <= maxIDLength
}

// Signer signs the requests to one webhook. It is safe for concurrent use, and meant to be kept for as long as the
// webhook's secrets stay the same: keying it anew costs more than signing with it.
type Signer struct {
	header string
	spaces *workspaces
}

// NewSigner returns a signer that signs with each of the given secrets, of which there must be 1 to 16: usually one,
// two during a rotation. The header is where the signature of the body goes; "" is [DefaultHeader].
//
// The error wraps [ErrSecret] if there is no secret, or a zero one, or too many, and [ErrConfig] if header is not a
// header name or is one of the three that Standard Webhooks needs.
func NewSigner(header string, secrets ...Secret) (*Signer, error) {
	key, err := headerKey(header)
	if err != nil {
		return nil, err
	}
	spaces, err := newWorkspaces(secrets)
	if err != nil {
		return nil, err
	}
	return &Signer{header: key, spaces: spaces}, nil
}

// Sign signs body, which may be empty but must be sent as it is, and sets the four headers in h, replacing what was
// there:
//
//   - X-Service-Signature, or the header given to [NewSigner]: the lower-case hex of HMAC-SHA256 (RFC 2104) of the
//     body, keyed with the secret's text as shown to its owner;
//   - Webhook-Id: id, which identifies the event and stays the same when the event is sent again;
//   - Webhook-Timestamp: at, in whole seconds, which is the time of this attempt;
//   - Webhook-Signature: "v1," and the base64 of HMAC-SHA256 of "id.timestamp.body", keyed with the bytes that the
//     secret encodes (Standard Webhooks, "Signature scheme").
//
// With several secrets the values are in their order, separated by a comma in the first and by a space in the last.
//
// Sign panics if id is not a [ValidID]: who accepts ids from elsewhere checks them there.
func (s *Signer) Sign(h http.Header, id string, at time.Time, body []byte) {
	if !ValidID(id) {
		panic("signing: invalid message id")
	}
	w := s.spaces.get()
	defer s.spaces.put(w)

	// All that is computed goes into one buffer, and from there into one string: the prefix "id.timestamp.", then the
	// signatures by the text of the secrets, then those by their bytes.
	b := append(w.buf[:0], id...)
	b = append(b, '.')
	timestamp := len(b)
	b = strconv.AppendInt(b, at.Unix(), 10)
	b = append(b, '.')
	prefix := len(b)
	for i := range w.keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = w.appendService(b, i, body)
	}
	service := len(b)
	for i := range w.keys {
		if i > 0 {
			b = append(b, ' ')
		}
		b = w.appendStandard(b, i, b[:prefix], body)
	}
	w.buf = b

	text := string(b[timestamp:])
	prefix, service = prefix-timestamp, service-timestamp
	values := []string{id, text[:prefix-1], text[prefix:service], text[service:]}
	h[HeaderID] = values[0:1:1]
	h[HeaderTimestamp] = values[1:2:2]
	h[s.header] = values[2:3:3]
	h[HeaderSignature] = values[3:4:4]
}
