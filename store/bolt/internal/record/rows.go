package record

import (
	"encoding/binary"
	"time"

	"github.com/storageapi/storageapi/apikeys"
)

// TimeKey returns milliseconds as a key, in the order of time, including times before 1970.
func TimeKey(at time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli())^1<<63)
}

// ExpiryKey returns the key of an expiry, in the order of time, account and ID: no account contains a 0.
func ExpiryKey(e apikeys.Expiry) []byte {
	key := append(append(TimeKey(e.At), e.Account...), 0)
	return append(key, e.ID...)
}

// RecoveryTimeKey returns the key of a recovery in the order of creation.
func RecoveryTimeKey(r *Recovery) []byte { return append(TimeKey(r.CreatedAt), r.ID...) }

// RequestTimeKey returns the key of a request in the order of time. row is its key among the requests.
func RequestTimeKey(at time.Time, row []byte) []byte { return append(TimeKey(at), row...) }
