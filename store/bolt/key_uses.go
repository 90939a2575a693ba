package bolt

import (
	"encoding/binary"
	"time"

	"github.com/storageapi/storageapi/apikeys"
)

// uses is when a key was last used: by any of its hashes ever, by its Hash, and by
// its Previous.
type uses struct{ any, current, previous time.Time }

// by returns when the key was last used by that hash, if it is one of its own.
func (u *uses) by(key *apikeys.Key, hash apikeys.Hash) time.Time {
	switch hash {
	case key.Hash:
		return u.current
	case key.Previous:
		return u.previous
	}
	return time.Time{}
}

// add notes that the key was used by a hash.
func (u *uses) add(key *apikeys.Key, hash apikeys.Hash, at time.Time) {
	u.any = later(u.any, at)
	switch {
	case hash == key.Hash:
		u.current = later(u.current, at)
	case hash == key.Previous && !hash.IsZero():
		u.previous = later(u.previous, at)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// putUses stores the uses of a key, if they are others than before.
func putUses(b *batch, row []byte, used, before uses) error {
	if used == before {
		return nil
	}
	return b.Put(bucketKeyUses, row, used.encode())
}

func (u *uses) encode() []byte {
	value := make([]byte, 0, 24)
	for _, at := range []time.Time{u.any, u.current, u.previous} {
		value = binary.BigEndian.AppendUint64(value, instant(at))
	}
	return value
}

func decodeUses(value []byte) (u uses) {
	for i, at := range []*time.Time{&u.any, &u.current, &u.previous} {
		if len(value) >= 8*(i+1) {
			*at = timeOf(binary.BigEndian.Uint64(value[8*i:]))
		}
	}
	return u
}
