package bolt

import "github.com/storageapi/storageapi/store/bolt/internal/record"

// putUses stores the uses of a key, if they are others than before.
func putUses(b *batch, row []byte, used, before record.Uses) error {
	if used == before {
		return nil
	}
	return b.Put(bucketKeyUses, row, used.Encode())
}
