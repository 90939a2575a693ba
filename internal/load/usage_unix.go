//go:build unix

package main

import (
	"syscall"
	"time"
)

// processorTime returns how long this process has kept processors busy.
func processorTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
