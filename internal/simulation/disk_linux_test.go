package simulation_test

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// A descriptor is that by which a store writes. It can be made to lead to the file for
// reading only, so that it is the system which refuses to write.
type descriptor struct {
	number int
	kept   int // leads to the file, and keeps its lock
}

// misdirect makes it so, if the file is open.
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

// find returns the descriptor by which a file is open.
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
