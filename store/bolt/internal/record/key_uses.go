package record

import (
	"encoding/binary"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

// Uses holds the times of a key's last uses: with any token, with the token of its Hash, and with
// the token of its Previous.
type Uses struct{ Any, Current, Previous time.Time }

// By returns the time when the token with this hash was last used, or the zero time if the token
// does not belong to the key.
func (u *Uses) By(key *driver.Key, hash driver.Hash) time.Time {
	switch hash {
	case key.Hash:
		return u.Current
	case key.Previous:
		return u.Previous
	}
	return time.Time{}
}

// Add records a use of the token with this hash.
func (u *Uses) Add(key *driver.Key, hash driver.Hash, at time.Time) {
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

// Encode returns the record. Few keys are ever rotated, so a record with uses of only the current
// token stores one time.
func (u *Uses) Encode() []byte {
	value := binary.BigEndian.AppendUint64(make([]byte, 0, 24), fixedTime(u.Any))
	if u.Current.Equal(u.Any) && u.Previous.IsZero() {
		return value
	}
	value = binary.BigEndian.AppendUint64(value, fixedTime(u.Current))
	return binary.BigEndian.AppendUint64(value, fixedTime(u.Previous))
}

// DecodeUses decodes Uses, or returns zero Uses if the record has an invalid length.
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
