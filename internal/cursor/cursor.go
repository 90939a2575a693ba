// Package cursor encodes the positions that stores count by as opaque cursors. A store
// counts the deliveries of all accounts, and a cursor must not show a client how many
// there are, so the position is encrypted; nor whether there are more than before, so each
// cursor is another one.
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

// Encode returns a cursor of the position n: 22 letters, digits, hyphens and underscores,
// others each time.
func (k Key) Encode(n uint64) string {
	var block [aes.BlockSize]byte // the position, zeros that Decode checks, and four bytes at random
	binary.BigEndian.PutUint64(block[:], n)
	_, _ = rand.Read(block[12:]) // never returns an error
	k.cipher().Encrypt(block[:], block[:])
	return base64.RawURLEncoding.EncodeToString(block[:])
}

// Decode returns the position of a cursor. It reports false if Encode did not make it
// with this key. (One of four billion other texts of that form is taken for one.)
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
		panic(err) // the length of a Key is right
	}
	return block
}
