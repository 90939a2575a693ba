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

// Encode returns the record. Few keys were rotated: if all uses were of Hash there is one time.
func (u *Uses) Encode() []byte {
	value := binary.BigEndian.AppendUint64(make([]byte, 0, 24), fixedTime(u.Any))
	if u.Current.Equal(u.Any) && u.Previous.IsZero() {
		return value
	}
	value = binary.BigEndian.AppendUint64(value, fixedTime(u.Current))
	return binary.BigEndian.AppendUint64(value, fixedTime(u.Previous))
}

// DecodeUses decodes Uses; zero ones unless the record has the length of one.
func DecodeUses(value []byte) (u Uses) {
	if !ValidUses(value) {
		return u
	}
	u.Any = timeOf(binary.BigEndian.Uint64(value))
	if u.Current = u.Any; len(value) > 8 {
		u.Current, u.Previous = timeOf(binary.BigEndian.Uint64(value[8:])), timeOf(binary.BigEndian.Uint64(value[16:]))
	}
	return u
}

// ValidUses reports whether a value has the length of a record of Uses.
func ValidUses(value []byte) bool { return len(value) == 8 || len(value) == 24 }
