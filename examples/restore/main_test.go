package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/store/bolt"
)

// Operators see flags, so errors must name the flags rather than the fields of boltops.Fence.
func TestRun_UnknownRevocations_NamesTheFlags(t *testing.T) {
	dir := t.TempDir()
	backup, abandoned, to := filepath.Join(dir, "backup.db"), filepath.Join(dir, "abandoned.db"), filepath.Join(dir, "storage.db")
	for _, path := range []string{backup, abandoned} {
		s, err := bolt.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	for want, args := range map[string][]string{
		"name the abandoned file in -abandoned, list keys in -revoked, or set -nothing-revoked": {"-from", backup, "-to", to},
		"-abandoned is the backup itself":                      {"-from", backup, "-to", to, "-abandoned", backup},
		"move it aside, and name it in -abandoned":             {"-from", backup, "-to", abandoned, "-nothing-revoked"},
		"set -from to the backup, and -to to the file to make": {"-from", backup},
	} {
		err := run(&out, args)
		if err == nil {
			t.Fatalf("%q: got no error", args)
		}
		if text := flags.Replace(err.Error()); !strings.Contains(text, want) || strings.Contains(text, "Fence") {
			t.Errorf("%q: got error %q, want %q", args, text, want)
		}
	}
	if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused run left a file: %v", err)
	}
	if err := run(&out, []string{"-from", backup, "-to", to, "-nothing-revoked"}); err != nil || !strings.HasPrefix(out.String(), "restored: ") {
		t.Errorf("got %q, %v", &out, err)
	}
}
