package cli

import (
	"errors"
	"os"
	"testing"
	"time"
)

// SetTerminal makes all streams terminals until the test ends.
func SetTerminal(t *testing.T) {
	before := isTerminal
	isTerminal = func(any) bool { return true }
	t.Cleanup(func() { isTerminal = before })
}

// NameOf returns a store's name without its password.
var NameOf = nameOf

func init() { listenPoll = 20 * time.Millisecond }

// FailLinks makes hard links fail until the test ends, as on a file system that has none.
func FailLinks(t *testing.T) {
	link = func(string, string) error { return errors.ErrUnsupported }
	t.Cleanup(func() { link = os.Link })
}
