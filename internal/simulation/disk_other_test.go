//go:build !linux

package simulation_test

// A disk fails on Linux only.
type disk struct{}

const (
	full     = "full"
	readOnly = "read-only"
)

func newDisk(string) *disk     { return &disk{} }
func (*disk) fail(string) bool { return false }
func (*disk) mend()            {}
