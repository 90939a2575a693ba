// Package cursor hides the numbers that stores count by. A store counts what all
// accounts have; who pages through a list is not to see from where the next page
// begins how much that is.
package cursor

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
)

// A Key hides numbers from whoever does not have it.
type Key [16]byte

// NewKey returns a new key, at random.
func NewKey() (k Key) {
	_, _ = rand.Read(k[:]) // never returns an error
	return k
}

// Seal returns what stands for the number: 22 letters, digits, hyphens and underscores,
// the same each time.
func (k Key) Seal(n uint64) string {
	var block [aes.BlockSize]byte // the number, and zeros by which Open knows it again
	binary.BigEndian.PutUint64(block[:], n)
	k.cipher().Encrypt(block[:], block[:])
	return base64.RawURLEncoding.EncodeToString(block[:])
}

// Open returns the number that the text stands for. It reports false if that is none
// that Seal made.
func (k Key) Open(text string) (n uint64, ok bool) {
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
