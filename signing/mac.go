package signing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"strings"
	"sync"
)

// maxSignatures bounds the secrets that sign or verify at a time, and the signatures in one header that are looked at.
const maxSignatures = 16

// ErrConfig is wrapped by the error for a header name, a tolerance or a size that cannot work.
var ErrConfig = errors.New("signing: invalid configuration")

// workspace is what one call of Sign or Verify works with: whatever is handed to a hash.Hash must live on the heap, so
// it is kept and used again. Not safe for concurrent use.
type workspace struct {
	keys []keyed
	buf  []byte
	sum  [sha256.Size]byte
}

// keyed holds the two HMAC states of one secret. Keying a state costs more than hashing 256 bytes; resetting one to
// its key is nearly free.
type keyed struct {
	service  hash.Hash // by the text of the secret
	standard hash.Hash // by the bytes that the text encodes
}

func newWorkspace(secrets []Secret) *workspace {
	w := &workspace{keys: make([]keyed, len(secrets))}
	for i, secret := range secrets {
		text, key := secret.reveal()
		w.keys[i] = keyed{
			service:  hmac.New(sha256.New, []byte(text)),
			standard: hmac.New(sha256.New, key),
		}
	}
	return w
}

// appendService appends to dst the value that the i-th secret contributes to X-Service-Signature.
func (w *workspace) appendService(dst []byte, i int, body []byte) []byte {
	mac := w.keys[i].service
	mac.Reset()
	mac.Write(body)
	return hex.AppendEncode(dst, mac.Sum(w.sum[:0]))
}

// appendStandard appends to dst the value that the i-th secret contributes to Webhook-Signature. The prefix is
// "id.timestamp.".
func (w *workspace) appendStandard(dst []byte, i int, prefix, body []byte) []byte {
	mac := w.keys[i].standard
	mac.Reset()
	mac.Write(prefix)
	mac.Write(body)
	dst = append(dst, "v1,"...)
	return base64.StdEncoding.AppendEncode(dst, mac.Sum(w.sum[:0]))
}

// workspaces hands out workspaces for a list of secrets.
type workspaces struct{ pool sync.Pool }

// newWorkspaces fails with ErrSecret unless there is something to sign with. It copies the list.
func newWorkspaces(secrets []Secret) (*workspaces, error) {
	if len(secrets) == 0 || len(secrets) > maxSignatures {
		return nil, fmt.Errorf("%w: want 1 to %d of them, have %d", ErrSecret, maxSignatures, len(secrets))
	}
	for _, secret := range secrets {
		if secret.IsZero() {
			return nil, fmt.Errorf("%w: it is the zero Secret", ErrSecret)
		}
	}
	secrets = append([]Secret(nil), secrets...)
	return &workspaces{sync.Pool{New: func() any { return newWorkspace(secrets) }}}, nil
}

func (p *workspaces) get() *workspace  { return p.pool.Get().(*workspace) }
func (p *workspaces) put(w *workspace) { p.pool.Put(w) }

// headerKey returns the key under which an [http.Header] holds the body's signature.
func headerKey(name string) (string, error) {
	if name == "" {
		name = DefaultHeader
	}
	key := http.CanonicalHeaderKey(name)
	if !isToken(name) || key == HeaderID || key == HeaderTimestamp || key == HeaderSignature {
		return "", fmt.Errorf("%w: %q cannot name the signature's header", ErrConfig, name)
	}
	return key, nil
}

// isToken reports whether s may be the name of a header (RFC 9110, section 5.6.2).
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
