// Package cursor encodes the positions that stores count by as opaque cursors. A store
// counts the deliveries of all accounts, and a cursor must not show a client how many
// there are, so the position is encrypted.
package cursor

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
)

// A Key encodes positions, so that they can be read only with it.
type Key [16]byte

// NewKey returns a new key, at random.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never returns an error
	return k
}

// Encode returns the cursor of the position n: 22 letters, digits, hyphens and
// underscores, the same each time.
func (k Key) Encode(n uint64) string {
	var block [aes.BlockSize]byte // the position, and zeros that Decode checks
	binary.BigEndian.PutUint64(block[:], n)
	k.cipher().Encrypt(block[:], block[:])
	return base64.RawURLEncoding.EncodeToString(block[:])
}

// Decode returns the position of a cursor. It reports false if Encode did not make it
// with this key.
func (k Key) Decode(text string) (n uint64, ok bool) {
	block, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(block) != aes.BlockSize {
		return 0, false
	}
	k.cipher().Decrypt(block, block)
	return binary.BigEndian.Uint64(block), binary.BigEndian.Uint64(block[8:]) == 0
}

func (k Key) cipher() cipher.Block {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic(err) // the length of a Key is right
	}
	return block
}
