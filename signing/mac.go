package signing

import (
	"crypto/sha256"
	"encoding"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"sync"
)

// macs is what signs and verifies with one secret.
type macs struct {
	service  mac // by the text of the secret
	standard mac // by the bytes that the text encodes
}

// mac is HMAC-SHA256 (RFC 2104) with its key: the two states, inner and outer, of a SHA-256 that has hashed the padded
// key, marshalled, one after the other. crypto/hmac works the same way, but as it cannot change its key it needs two
// hashes of its own and a dozen allocations for every key, which takes longer than a signature. Here the hash is one of
// a few that all secrets share.
type mac []byte

const stateSize = 108 // of a marshalled SHA-256; nothing but a capacity depends on it

// workspace is what one call of Sign or Verify works with: what is handed to a hash.Hash must live on the heap, so
// it is kept and used again. Not safe for concurrent use.
type workspace struct {
	hash  resumable
	block [sha256.BlockSize]byte
	sum   [sha256.Size]byte
	buf   []byte

	second    int64    // the last one that was signed; many requests share it
	timestamp string   // its text, or "" before the first
	values    []string // yet unused: many requests share an allocation
}

// resumable is what sha256.New is documented to return.
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

// appendState appends the state of a SHA-256 that has hashed the key, filled up to a block with zeros and XORed with pad.
func (w *workspace) appendState(dst, key []byte, pad byte) []byte {
	clear(w.block[copy(w.block[:], key):])
	for i := range w.block {
		w.block[i] ^= pad
	}
	w.hash.Reset()
	w.hash.Write(w.block[:])
	dst, err := w.hash.AppendBinary(dst)
	if err != nil {
		panic("signing: " + err.Error()) // SHA-256 has no reason to
	}
	return dst
}

// compute returns the HMAC of prefix and body, which w holds until the next call.
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
		panic("signing: " + err.Error()) // it is as appendState made it
	}
}

// appendService appends to dst the value that a secret contributes to X-Service-Signature.
func (w *workspace) appendService(dst []byte, m *macs, body []byte) []byte {
	return hex.AppendEncode(dst, w.compute(m.service, nil, body))
}

// appendStandard appends to dst the value that a secret contributes to Webhook-Signature. The prefix is
// "id.timestamp.".
func (w *workspace) appendStandard(dst []byte, m *macs, prefix, body []byte) []byte {
	dst = append(dst, "v1,"...)
	return base64.StdEncoding.AppendEncode(dst, w.compute(m.standard, prefix, body))
}
