// Package testdir has tests keep their files in memory, where a sync costs nothing.
package testdir

import (
	"flag"
	"os"
)

const (
	memory = "/dev/shm"
	room   = 2 << 30 // bytes that memory must have free
)

// InMemory has [testing.T.TempDir] return directories in memory, if the system has room there and the
// environment does not name a directory (TMPDIR). TestMain calls it. Killing a process loses nothing
// that it has written there. Benchmarks measure the disk, and stay on it.
func InMemory() {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" && os.Getenv("TMPDIR") == "" && free(memory) >= room {
		_ = os.Setenv("TMPDIR", memory)
	}
}
