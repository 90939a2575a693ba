package eventlog

import (
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Number returns the number stored under a key of the bucket schema.Meta, or 0.
func Number(tx *bbolt.Tx, key []byte) uint64 {
	return record.Number(tx.Bucket(schema.Meta).Get(key))
}
