package bolt_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/webhooks"
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

// TestVerifySealed verifies a file whose secrets are sealed: their form without keys, and that they can be
// opened with them.
func TestVerifySealed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	keyring := func(fill byte) *signing.Keyring {
		keys, err := signing.NewKeyring(bytes.Repeat([]byte{fill}, 32))
		must(t, err)
		return keys
	}
	s, err := bolt.Open(path, bolt.Sealed(keyring(1)))
	must(t, err)
	hooks, err := webhooks.New(s, webhooks.Config{})
	must(t, err)
	_, err = hooks.Create(t.Context(), "acct", webhooks.CreateParams{URL: "https://example.com/", Events: []webhooks.EventType{webhooks.TypeBalanceLow}})
	must(t, err)
	must(t, s.Close())
	verify(t, path)
	report, err := bolt.Verify(path, bolt.Sealed(keyring(1)))
	must(t, err)
	must(t, report.Err())
	report, err = bolt.Verify(path, bolt.Sealed(keyring(2)))
	must(t, err)
	if len(report.Problems) != 2 || report.Problems[0].Bucket != "meta" || report.Problems[1].Bucket != "webhooks" {
		t.Errorf("with another key: %v", report.Problems)
	}
}
