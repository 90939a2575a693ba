//go:build linux || darwin || freebsd

package files

import (
	"os"
	"syscall"
)

// FreeRoom returns the number of bytes that can still be written to the file system of the file.
func FreeRoom(file *os.File) (bytes int64, known bool) {
	var s syscall.Statfs_t
	if err := syscall.Fstatfs(int(file.Fd()), &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true //nolint:unconvert // the types differ between systems
}
