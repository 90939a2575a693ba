package bolt

import (
	"errors"
	"fmt"
)

// Functions of package boltops. Tests in package bolt call them through these variables, because
// they cannot import boltops.
var (
	VerifyFile  func(path string) (freeBytes int64, problems []string, err error)
	CompactFile func(dst, src string) (before, after int64, err error)
	RestoreFile func(path, from string) error
)

// A report is the result of boltops.Verify without types of that package.
type report struct {
	FreeBytes int64
	Problems  []string
}

func (r report) Err() error {
	if len(r.Problems) > 0 {
		return errors.New(fmt.Sprint(r.Problems))
	}
	return nil
}

func Verify(path string) (r report, err error) {
	r.FreeBytes, r.Problems, err = VerifyFile(path)
	return r, err
}
