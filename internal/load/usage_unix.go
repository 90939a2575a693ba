//go:build unix

package main

import (
	"syscall"
	"time"
)

// processorTime returns the processor time used by this process.
func processorTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
