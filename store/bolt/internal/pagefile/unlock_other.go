//go:build !darwin && !dragonfly && !freebsd && !linux && !netbsd && !openbsd

package pagefile

import "os"

// unlock does nothing: the lock ends when the file is closed.
func unlock(*os.File) {}
