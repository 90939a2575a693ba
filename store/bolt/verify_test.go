package bolt_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// verify fails the test if Verify finds a problem in the closed file.
func verify(t *testing.T, path string) {
	t.Helper()
	report, err := boltops.Verify(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range report.Problems {
		t.Errorf("%s: %s", filepath.Base(path), p)
	}
}

// If the file has an unknown schema or damaged pages, the report must not claim that the file is
// empty.
func TestVerify_AnotherSchema_IsNotCounted(t *testing.T) {
	path := filled(t)
	report, err := boltops.Verify(path, nil)
	must(t, err)
	if !report.Counted || report.Events == 0 {
		t.Errorf("of a sound file: %+v", report)
	}
	sound, err := os.ReadFile(path)
	must(t, err)
	another := filepath.Join(t.TempDir(), "another.db")
	copyFile(t, path, another)
	spoil(t, another, "meta", "format", func(value []byte) []byte { return []byte{7: 77} })
	report, err = boltops.Verify(another, nil)
	if !errors.Is(err, bolt.ErrSchema) || report.Counted || report.Schema != 77 || report.Bytes == 0 || len(report.Problems) > 0 {
		t.Errorf("of schema 77: %+v, %v", report, err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged.db")
	copy(sound[rootOf(sound)*4096+8:], []byte{0x10})
	must(t, os.WriteFile(damaged, sound, 0o600))
	if report, err := boltops.Verify(damaged, nil); err != nil || report.Counted || len(report.Problems) == 0 {
		t.Errorf("of a file whose root is damaged: %+v, %v", report, err)
	}
}

// TestVerifySealed verifies a file with sealed secrets. Without keys, Verify checks only the form
// of the secrets; with keys, it checks that the secrets can be opened.
func TestVerifySealed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	keyring := func(fill byte) *signing.Keyring {
		keys, err := signing.NewKeyring(bytes.Repeat([]byte{fill}, 32))
		must(t, err)
		return keys
	}
	s, err := bolt.Open(path, bolt.Sealed(keyring(1)))
	must(t, err)
	hooks, err := webhooks.New(s, webhooks.Config{Events: alerts.Events()})
	must(t, err)
	_, err = hooks.Create(t.Context(), "acct", webhooks.CreateParams{URL: "https://example.com/", Events: []driver.EventType{alerts.TypeBalanceLow}})
	must(t, err)
	must(t, s.Close())
	verify(t, path)
	report, err := boltops.Verify(path, keyring(1))
	must(t, err)
	must(t, report.Err())
	if _, err := boltops.Verify(path, keyring(2)); !errors.Is(err, signing.ErrSealed) {
		t.Errorf("with another key: got %v, want ErrSealed", err)
	}

	// Damage the row of the data key.
	for name, change := range map[string]func([]byte) []byte{
		"truncated": func(row []byte) []byte { return row[:len(row)-1] }, "another version": func(row []byte) []byte { return append([]byte{9}, row[1:]...) },
		"short": func(row []byte) []byte { return row[:3] }, "missing": func([]byte) []byte { return nil },
	} {
		damaged := filepath.Join(t.TempDir(), "damaged.db")
		copyFile(t, path, damaged)
		spoil(t, damaged, "meta", "data_key", change)
		report, err := boltops.Verify(damaged, keyring(1))
		must(t, err)
		if len(report.Problems) != 1 || report.Problems[0].Key != `"data_key"` {
			t.Errorf("data key %s: got the problems %v, want one of the data key", name, report.Problems)
		}
		if s, err := bolt.Open(damaged, bolt.Sealed(keyring(1))); !errors.Is(err, signing.ErrDamaged) {
			t.Errorf("data key %s: Open = %v, %v; want ErrDamaged", name, s, err)
		}
	}
}
