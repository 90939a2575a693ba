//go:build !linux && !darwin && !freebsd

package bolt

import "os"

// freeRoom says that it is not known how many bytes may be written.
func freeRoom(*os.File) (bytes int64, known bool) { return 0, false }
