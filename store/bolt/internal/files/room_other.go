//go:build !linux && !darwin && !freebsd

package files

import "os"

// FreeRoom says that it is not known how many bytes may be written.
func FreeRoom(*os.File) (bytes int64, known bool) { return 0, false }
