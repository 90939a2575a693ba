package simulation_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// A disk is what a file is on. It fails for real: while it does, the descriptor by
// which the store writes leads elsewhere, and the system refuses to write.
type disk struct {
	path string

	mu   sync.Mutex
	fd   int // the store's; -1: none is taken
	kept int // leads to the file, and keeps its lock
}

// The ways in which a disk can fail.
const (
	full     = "full"      // ENOSPC: nothing is written
	readOnly = "read-only" // EBADF: nothing can be written any more
)

func newDisk(path string) *disk { return &disk{path: path, fd: -1} }

// fail makes all writes of the file fail, until mend. It reports whether the file is
// open and was not failing.
func (d *disk) fail(how string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	fd := d.find()
	if d.fd >= 0 || fd < 0 {
		return false
	}
	broken, flags := "/dev/full", os.O_RDWR
	if how == readOnly {
		broken, flags = d.path, os.O_RDONLY
	}
	f, err := os.OpenFile(broken, flags, 0)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	kept, err := syscall.Dup(fd)
	if err != nil {
		panic(err)
	}
	if err := syscall.Dup3(int(f.Fd()), fd, syscall.O_CLOEXEC); err != nil {
		panic(err)
	}
	d.fd, d.kept = fd, kept
	return true
}

// mend ends fail.
func (d *disk) mend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd < 0 {
		return
	}
	if err := syscall.Dup3(d.kept, d.fd, syscall.O_CLOEXEC); err != nil {
		panic(err)
	}
	_ = syscall.Close(d.kept)
	d.fd = -1
}

// find returns the descriptor by which the file is open, or -1.
func (d *disk) find() int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return -1
	}
	for _, entry := range list {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name())); err != nil || target != d.path {
			continue
		}
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			panic(fmt.Sprint("a descriptor named ", entry.Name()))
		}
		return fd
	}
	return -1
}
