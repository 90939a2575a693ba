package bolt

import (
	"path/filepath"
	"testing"
)

// A cursor stays valid after a restart, but is invalid in any other file.
func TestCursors_AfterRestart_StayValid(t *testing.T) {
	dir := t.TempDir()
	seal := func(name string) (text string, decode func(string) (uint64, bool)) {
		s, err := open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return s.cursors.Encode(7), s.cursors.Decode
	}
	text, _ := seal("one")
	_, open := seal("one")
	if n, ok := open(text); n != 7 || !ok {
		t.Errorf("%q is %d, %v after a restart", text, n, ok)
	}
	_, other := seal("two")
	if _, ok := other(text); ok {
		t.Error("two files have one key")
	}
}
