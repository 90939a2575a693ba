//go:build unix

package webhooks_test

import (
	"syscall"
	"time"
)

// processorTime returns how long this process has kept processors busy, which other
// processes on the machine change less than how long anything takes.
func processorTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
