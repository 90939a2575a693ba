package testdir

import "syscall"

// free returns how many bytes the file system of a directory has free; 0 if that is unknown.
func free(dir string) int64 {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return 0
	}
	return int64(s.Bavail) * s.Bsize
}
