package bolt_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

// The test damages each page of a file in turn and opens it. Even if Open fails, the file must be
// usable again as soon as its original contents are written back.
func TestOpen_DamagedPage_FileCanBeRestoredInPlace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "storage.db")
	s := open(t, dir)
	for i := range 50 {
		if err := s.CreateKey(t.Context(), driver.Key{ID: string(rune('a' + i)), Account: "acct", Hash: driver.Hash{Sum: [32]byte{byte(i + 1)}}}, driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Logf("descriptors are not counted: %v", err)
		}
		return len(list)
	}
	before, refused := descriptors(), 0
	for page := 0; page < len(good); page += os.Getpagesize() {
		damaged := bytes.Clone(good)
		copy(damaged[page+8:], []byte{0xff, 0xff}) // page flags
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := bolt.Open(path); err == nil {
			_ = s.Close()
		} else {
			refused++
		}
		if err := os.WriteFile(path, good, 0o600); err != nil { // overwrites in place, as cp does
			t.Fatal(err)
		}
		s, err := bolt.Open(path)
		if err != nil {
			t.Fatalf("page %d: the restored file: %v", page/os.Getpagesize(), err)
		}
		_ = s.Close()
	}
	if after := descriptors(); after > before {
		t.Errorf("%d descriptors were left open", after-before)
	}
	if refused == 0 {
		t.Error("no damaged file was refused: the test tests nothing")
	}
}
