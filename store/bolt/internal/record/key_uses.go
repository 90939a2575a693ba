package record

import (
	"encoding/binary"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

// Uses holds the times of a key's last uses: with any token, with the token of its Hash, and with
// the token of its Previous. It also holds the key's activity.
type Uses struct {
	Any, Current, Previous time.Time
	Activity               driver.KeyActivity
}

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

// Add records a use of the token with this hash, and activity.
func (u *Uses) Add(key *driver.Key, hash driver.Hash, at time.Time, activity driver.KeyActivity) {
	u.Activity = u.Activity.Add(activity, !at.Before(u.Any))
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

const (
	usesOfAny = 8 // length of a record without other times and activity
	usesOfAll = 3*8 + 1
)

// Encode returns the record. It begins with the time of the last use. If the key has other times or
// activity, a byte with the number of other times, these times and the activity follow. Few keys
// are ever rotated, so most records have no other times.
func (u *Uses) Encode() []byte {
	value := binary.BigEndian.AppendUint64(make([]byte, 0, usesOfAll+len(u.Activity)), fixedTime(u.Any))
	switch {
	case !u.Current.Equal(u.Any) || !u.Previous.IsZero():
		value = binary.BigEndian.AppendUint64(append(value, 2), fixedTime(u.Current))
		value = binary.BigEndian.AppendUint64(value, fixedTime(u.Previous))
	case u.Activity != "":
		value = append(value, 0)
	}
	return append(value, u.Activity...)
}

// DecodeUses decodes Uses, or returns zero Uses if the record is not valid.
func DecodeUses(value []byte) (u Uses) {
	if !ValidUses(value) {
		return u
	}
	u.Any = timeOf(binary.BigEndian.Uint64(value))
	u.Current = u.Any
	if len(value) == usesOfAny {
		return u
	}
	rest := value[usesOfAny+1:]
	if value[usesOfAny] == 2 {
		u.Current, u.Previous = timeOf(binary.BigEndian.Uint64(rest)), timeOf(binary.BigEndian.Uint64(rest[8:]))
		rest = rest[16:]
	}
	u.Activity = driver.KeyActivity(rest)
	return u
}

// ValidUses reports whether a value has the form of a record of Uses.
func ValidUses(value []byte) bool {
	return len(value) == usesOfAny || len(value) > usesOfAny && (value[usesOfAny] == 0 || value[usesOfAny] == 2 && len(value) >= usesOfAll)
}
