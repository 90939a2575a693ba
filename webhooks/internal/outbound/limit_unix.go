//go:build unix

package outbound

import "syscall"

// descriptors returns the number of file descriptors that this process may open. The Go runtime
// raises this soft limit to the hard limit at start.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return unlimited
	}
	return uint64(limit.Cur) //nolint:unconvert // signed on some systems
}
