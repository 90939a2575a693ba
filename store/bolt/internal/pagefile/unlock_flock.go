//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pagefile

import (
	"os"
	"syscall"
)

// unlock releases bbolt's lock on a file.
func unlock(file *os.File) { _ = syscall.Flock(int(file.Fd()), syscall.LOCK_UN) }
