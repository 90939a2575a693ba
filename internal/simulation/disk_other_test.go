//go:build !linux

package simulation_test

// A descriptor leads where it leads: on Linux only it can be made to lead elsewhere.
type descriptor struct{}

func (*descriptor) misdirect(string) bool { return false }
func (*descriptor) redirect()             {}
