package bolt_test

import (
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
)

func init() {
	bolt.VerifyFile = func(path string) (freeBytes int64, problems []string, err error) {
		report, err := boltops.Verify(path, nil)
		for _, p := range report.Problems {
			problems = append(problems, p.String())
		}
		return report.FreeBytes, problems, err
	}
	bolt.CompactFile = func(dst, src string) (before, after int64, err error) {
		info, err := boltops.Compact(dst, src)
		return info.Before, info.After, err
	}
	bolt.RestoreFile = func(path, from string) error {
		_, err := boltops.Restore(path, from, boltops.Fence{NothingRevoked: true, RefuseDamaged: true})
		return err
	}
}
