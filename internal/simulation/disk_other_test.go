//go:build !linux

package simulation_test

// A descriptor cannot be replaced on systems other than Linux.
type descriptor struct{}

func (*descriptor) misdirect(string) bool { return false }
func (*descriptor) redirect()             {}
