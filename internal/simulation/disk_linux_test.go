package simulation_test

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// A descriptor is the file descriptor to which a store writes. Tests can replace it with a
// read-only one, so that the system rejects writes.
type descriptor struct {
	number int
	kept   int // a copy of the original, which keeps the file's lock
}

// misdirect replaces the descriptor with a read-only one. It returns false if the file is not open.
func (d *descriptor) misdirect(path string) bool {
	number, ok := find(path)
	if !ok {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	kept, err := syscall.Dup(number)
	if err == nil {
		err = syscall.Dup3(int(f.Fd()), number, syscall.O_CLOEXEC)
	}
	if err != nil {
		panic(err)
	}
	d.number, d.kept = number, kept
	return true
}

// redirect undoes misdirect.
func (d *descriptor) redirect() {
	if err := syscall.Dup3(d.kept, d.number, syscall.O_CLOEXEC); err != nil {
		panic(err)
	}
	_ = syscall.Close(d.kept)
}

// find returns the number of the descriptor of an open file.
func find(path string) (number int, ok bool) {
	const descriptors = "/proc/self/fd"
	list, err := os.ReadDir(descriptors)
	if err != nil {
		return 0, false
	}
	for _, entry := range list {
		if target, err := os.Readlink(filepath.Join(descriptors, entry.Name())); err == nil && target == path {
			number, err := strconv.Atoi(entry.Name())
			return number, err == nil
		}
	}
	return 0, false
}
