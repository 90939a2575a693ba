package record

import (
	"encoding/binary"
	"time"

	"github.com/storageapi/storageapi/apikeys"
)

// Uses is when a key was last used: by any of its hashes ever, by its Hash, and by
// its Previous.
type Uses struct{ Any, Current, Previous time.Time }

// By returns when the key was last used by that hash, if it is one of its own.
func (u *Uses) By(key *apikeys.Key, hash apikeys.Hash) time.Time {
	switch hash {
	case key.Hash:
		return u.Current
	case key.Previous:
		return u.Previous
	}
	return time.Time{}
}

// Add notes that the key was used by a hash.
func (u *Uses) Add(key *apikeys.Key, hash apikeys.Hash, at time.Time) {
	u.Any = later(u.Any, at)
	switch {
	case hash == key.Hash:
		u.Current = later(u.Current, at)
	case hash == key.Previous && !hash.IsZero():
		u.Previous = later(u.Previous, at)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Encode returns the record.
func (u *Uses) Encode() []byte {
	value := make([]byte, 0, 24)
	for _, at := range []time.Time{u.Any, u.Current, u.Previous} {
		value = binary.BigEndian.AppendUint64(value, fixedTime(at))
	}
	return value
}

// DecodeUses decodes Uses. What is missing is zero.
func DecodeUses(value []byte) (u Uses) {
	for i, at := range []*time.Time{&u.Any, &u.Current, &u.Previous} {
		if len(value) >= 8*(i+1) {
			*at = timeOf(binary.BigEndian.Uint64(value[8*i:]))
		}
	}
	return u
}
