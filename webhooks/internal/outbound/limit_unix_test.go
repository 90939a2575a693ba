//go:build unix

package outbound

import (
	"syscall"
	"testing"
)

func TestDefaultMaxIdle_LowDescriptorLimit_IsHalfOfIt(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	lower := limit
	lower.Cur = min(limit.Cur, 4000)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &lower); err != nil {
		t.Skip(err)
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) }()
	if got, want := DefaultMaxIdle(), int(lower.Cur/2); got != want {
		t.Errorf("DefaultMaxIdle() = %d with %d descriptors, want %d", got, lower.Cur, want)
	}
}
