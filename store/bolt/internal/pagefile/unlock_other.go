//go:build !darwin && !dragonfly && !freebsd && !linux && !netbsd && !openbsd

package pagefile

import "os"

// unlock does nothing: closing the file releases the lock.
func unlock(*os.File) {}
