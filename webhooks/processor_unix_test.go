//go:build unix

package webhooks_test

import (
	"syscall"
	"time"
)

// processorTime returns the processor time used by this process. Other processes on the machine
// affect it less than elapsed time.
func processorTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
