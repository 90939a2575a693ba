package record

import (
	"encoding/binary"
	"time"

	"github.com/storageapi/storageapi/store/driver"
)

// TimeKey returns a key that sorts by time in milliseconds, including times before 1970.
func TimeKey(at time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli())^1<<63)
}

// ExpiryKey returns a key that sorts by expiry, account and ID. A zero byte ends the account,
// because accounts contain no zero bytes.
func ExpiryKey(e driver.Expiry) []byte {
	key := append(append(TimeKey(e.At), e.Account...), 0)
	return append(key, e.ID...)
}

// RecoveryTimeKey returns a key that sorts recoveries by creation.
func RecoveryTimeKey(r *Recovery) []byte { return append(TimeKey(r.CreatedAt), r.ID...) }

// RequestTimeKey returns a key that sorts requests by time. row is the request's key in its own
// bucket.
func RequestTimeKey(at time.Time, row []byte) []byte { return append(TimeKey(at), row...) }
