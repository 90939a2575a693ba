// Package testdir lets tests keep their files in memory, where a sync costs nothing.
package testdir

import (
	"flag"
	"os"
)

const (
	memory = "/dev/shm"
	room   = 2 << 30 // free bytes that the file system in memory must have
)

// InMemory makes [testing.T.TempDir] return directories in memory. It does nothing if there is too
// little room, or if the environment variable TMPDIR names a directory. It does nothing for
// benchmarks either, because they must measure the disk. Call it in TestMain. Files survive a kill
// of the process.
func InMemory() {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" && os.Getenv("TMPDIR") == "" && free(memory) >= room {
		_ = os.Setenv("TMPDIR", memory)
	}
}
