// Package cursor encodes positions in a store as opaque cursors. A store numbers the deliveries of
// all accounts together. A cursor is encrypted, so that clients cannot see the number of
// deliveries, and randomized, so that they cannot see whether there are new deliveries.
package cursor

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
)

// A Key encrypts and decrypts cursors.
type Key [16]byte

// NewKey returns a random key.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never returns an error
	return k
}

// Encode returns a cursor for position n: 22 letters, digits, hyphens and underscores, which
// differ each time.
func (k Key) Encode(n uint64) string {
	var block [aes.BlockSize]byte // position, four zeros that Decode checks, four random bytes
	binary.BigEndian.PutUint64(block[:], n)
	_, _ = rand.Read(block[12:]) // never returns an error
	k.cipher().Encrypt(block[:], block[:])
	return base64.RawURLEncoding.EncodeToString(block[:])
}

// Decode returns the position of a cursor. It reports false if the cursor was not encoded with this
// key, except for one in four billion strings that have the form of a cursor.
func (k Key) Decode(text string) (n uint64, ok bool) {
	block, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(block) != aes.BlockSize {
		return 0, false
	}
	k.cipher().Decrypt(block, block)
	return binary.BigEndian.Uint64(block), binary.BigEndian.Uint32(block[8:]) == 0
}

func (k Key) cipher() cipher.Block {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic(err) // impossible: a Key has a valid length
	}
	return block
}
