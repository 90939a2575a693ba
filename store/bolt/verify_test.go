package bolt_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi/store/bolt"
)

// verify fails the test if the file, which is closed, has a problem.
func verify(t *testing.T, path string) {
	t.Helper()
	report, err := bolt.Verify(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Errorf("%s: %s", filepath.Base(path), p)
	}
}

// TestVerifyReleasedFiles upgrades the files of all schemas, and finds nothing wrong with them.
func TestVerifyReleasedFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/schema-*.db")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), filepath.Base(file))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		verify(t, path)
		s, err := bolt.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		verify(t, path)
		report, _ := bolt.Verify(path)
		t.Logf("%+v", report)
	}
}
