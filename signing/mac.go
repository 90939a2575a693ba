package signing

import (
	"crypto/sha256"
	"encoding"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"sync"
)

// macs signs and verifies with one secret.
type macs struct {
	service  mac // keyed with the secret's text
	standard mac // keyed with the bytes that the text encodes
}

// mac is a keyed HMAC-SHA256 (RFC 2104): the marshalled inner and outer states of a SHA-256 that
// has hashed the padded key. crypto/hmac works the same way, but cannot change its key. It would
// need two hashes and a dozen allocations for each key, which take longer than a signature. Here a
// few pooled hashes serve all secrets.
type mac []byte

const stateSize = 108 // of a marshalled SHA-256; only used as a capacity

// A workspace is the reusable memory for one call to Sign or Verify. It is pooled, because
// arguments of a hash.Hash escape to the heap. It is not safe for concurrent use.
type workspace struct {
	hash  resumable
	block [sha256.BlockSize]byte
	sum   [sha256.Size]byte
	buf   []byte

	second    int64    // last signed second, which many requests share
	timestamp string   // text of second, or "" at first
	values    []string // unused header values: many requests share an allocation
}

// resumable lists the methods that sha256.New documents for its result.
type resumable interface {
	hash.Hash
	encoding.BinaryAppender
	encoding.BinaryUnmarshaler
}

var workspaces = sync.Pool{New: func() any { return &workspace{hash: sha256.New().(resumable)} }}

func getWorkspace() *workspace  { return workspaces.Get().(*workspace) }
func putWorkspace(w *workspace) { workspaces.Put(w) }

func (w *workspace) newMAC(key []byte) mac {
	if len(key) > sha256.BlockSize {
		w.hash.Reset()
		w.hash.Write(key)
		key = w.hash.Sum(w.sum[:0])
	}
	m := make(mac, 0, 2*stateSize)
	m = w.appendState(m, key, 0x36)
	return w.appendState(m, key, 0x5c)
}

// appendState appends the state of a SHA-256 that has hashed the key, padded with zeros to a block
// and XORed with pad.
func (w *workspace) appendState(dst, key []byte, pad byte) []byte {
	clear(w.block[copy(w.block[:], key):])
	for i := range w.block {
		w.block[i] ^= pad
	}
	w.hash.Reset()
	w.hash.Write(w.block[:])
	dst, err := w.hash.AppendBinary(dst)
	if err != nil {
		panic("signing: " + err.Error()) // cannot happen with SHA-256
	}
	return dst
}

// compute returns the HMAC of prefix and body. The result is valid until the next use of w.
func (w *workspace) compute(m mac, prefix, body []byte) []byte {
	w.resume(m[:len(m)/2])
	w.hash.Write(prefix)
	w.hash.Write(body)
	inner := w.hash.Sum(w.sum[:0])
	w.resume(m[len(m)/2:])
	w.hash.Write(inner)
	return w.hash.Sum(w.sum[:0])
}

func (w *workspace) resume(state []byte) {
	if err := w.hash.UnmarshalBinary(state); err != nil {
		panic("signing: " + err.Error()) // cannot happen with a state of appendState
	}
}

// appendService appends the value for X-Service-Signature with one secret to dst.
func (w *workspace) appendService(dst []byte, m *macs, body []byte) []byte {
	return hex.AppendEncode(dst, w.compute(m.service, nil, body))
}

// appendStandard appends to dst the value of Webhook-Signature for one secret. prefix is
// "id.timestamp.".
func (w *workspace) appendStandard(dst []byte, m *macs, prefix, body []byte) []byte {
	dst = append(dst, "v1,"...)
	return base64.StdEncoding.AppendEncode(dst, w.compute(m.standard, prefix, body))
}
