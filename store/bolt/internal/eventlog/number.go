package eventlog

import (
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Number returns the number stored under a key of the bucket schema.Meta, or 0.
func Number(tx *bbolt.Tx, key []byte) uint64 {
	if v := tx.Bucket(schema.Meta).Get(key); len(v) == 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}
