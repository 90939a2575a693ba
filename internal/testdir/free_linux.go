package testdir

import "syscall"

// free returns the number of free bytes in the file system of a directory, or 0 if it is unknown.
func free(dir string) int64 {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return 0
	}
	return int64(s.Bavail) * s.Bsize
}
