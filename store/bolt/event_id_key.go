package bolt

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"

	"github.com/oklog/ulid/v2"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// An idSecret keeps those who choose ids from choosing ids of the same key.
type idSecret [16]byte

// loadIDSecret reads the secret of a file, and makes one if it has none.
func loadIDSecret(db *bbolt.DB) (secret idSecret, err error) {
	known := false
	err = db.View(func(tx *bbolt.Tx) error {
		known = copy(secret[:], tx.Bucket(bucketMeta).Get(keyIDSecret)) == len(secret)
		return nil
	})
	if err != nil || known {
		return secret, err
	}
	_, _ = rand.Read(secret[:]) // never fails
	return secret, db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyIDSecret, secret[:]) })
}

// The kinds of keys, in their order in bucketEventIDs. A kind has the first two bits of a key.
const (
	timeKeys   = 0 << 62
	numberKeys = 1 << 62
	randomKeys = 2 << 62
)

// keyOf returns the key of an event's id in bucketEventIDs. Ids that are made one after the
// other by the usual means have keys that are close together, so that storing them touches
// few pages: a ULID or a UUID of version 7 by its time, one that ends in a number by that.
// Others are spread evenly. Nothing else depends on what an id looks like.
func (s *idSecret) keyOf(account, id string) uint64 {
	var buffer [128]byte
	text := record.AppendPrefixed(append(buffer[:0], s[:]...), id, account)
	sum := sha256.Sum256(text)
	hash := binary.BigEndian.Uint64(sum[:])
	if at, ok := timeIn(id); ok {
		return timeKeys | at<<20 | hash>>44
	}
	if length, top, ok := numberIn(id); ok {
		return numberKeys | length<<56 | top<<32 | hash>>32
	}
	return randomKeys | hash>>1
}

// timeIn returns the Unix milliseconds, of 42 bits, in an id that ends in a ULID or a UUID
// of version 7.
func timeIn(id string) (at uint64, ok bool) {
	if n := len(id) - 36; n >= 0 && id[n+8] == '-' && id[n+13] == '-' && id[n+14] == '7' {
		at, err := strconv.ParseUint(id[n:n+8]+id[n+9:n+13], 16, 64)
		return at, err == nil && at < 1<<42
	}
	if len(id) < ulid.EncodedSize {
		return 0, false
	}
	made, err := ulid.ParseStrict(id[len(id)-ulid.EncodedSize:])
	return made.Time(), err == nil && made.Time() < 1<<42
}

// numberIn returns the length, in bits, and the first 24 bits of the number of at most 18
// digits that an id ends in.
func numberIn(id string) (length, top uint64, ok bool) {
	begin := len(id)
	for begin > 0 && len(id)-begin < 18 && '0' <= id[begin-1] && id[begin-1] <= '9' {
		begin--
	}
	n, err := strconv.ParseUint(id[begin:], 10, 64)
	length = uint64(bits.Len64(n))
	if length > 24 {
		n >>= length - 24
	}
	return length, n, err == nil
}
