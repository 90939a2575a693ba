package boltops

import (
	"bytes"
	"slices"
	"testing"

	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

func TestTables_EveryBucket_IsDescribed(t *testing.T) {
	all := slices.Concat(tables, segmentTables)
	for _, bucket := range schema.Buckets {
		n := 0
		for _, table := range all {
			if bytes.Equal(table.bucket, bucket) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("bucket %s has %d tables, want 1", bucket, n)
		}
	}
}
