package record

import (
	"encoding/binary"
	"time"

	"github.com/storageapi/storageapi/apikeys"
)

// Uses holds when a key was last used: by any value, by the value of its Hash, and by the value of
// its Previous.
type Uses struct{ Any, Current, Previous time.Time }

// By returns when the key was last used with hash, if hash belongs to it.
func (u *Uses) By(key *apikeys.Key, hash apikeys.Hash) time.Time {
	switch hash {
	case key.Hash:
		return u.Current
	case key.Previous:
		return u.Previous
	}
	return time.Time{}
}

// Add records a use of the key with hash.
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

func (u *Uses) Encode() []byte {
	value := make([]byte, 0, 24)
	for _, at := range []time.Time{u.Any, u.Current, u.Previous} {
		value = binary.BigEndian.AppendUint64(value, fixedTime(at))
	}
	return value
}

// DecodeUses decodes Uses. Missing fields are zero.
func DecodeUses(value []byte) (u Uses) {
	for i, at := range []*time.Time{&u.Any, &u.Current, &u.Previous} {
		if len(value) >= 8*(i+1) {
			*at = timeOf(binary.BigEndian.Uint64(value[8*i:]))
		}
	}
	return u
}
