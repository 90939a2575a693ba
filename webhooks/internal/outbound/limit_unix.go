//go:build unix

package outbound

import "syscall"

// descriptors returns how many this process may open. Go has raised that to all that the
// system allows it.
func descriptors() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return unlimited
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on some systems
}
