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

func TestBoltfile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(new(bytes.Buffer), []string{"verify", path}); !errors.Is(err, bolt.ErrLocked) {
		t.Errorf("a file in use: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	smaller := filepath.Join(t.TempDir(), "smaller.db")
	for _, args := range [][]string{{"verify", path}, {"compact", smaller, path}, {"verify", smaller}} {
		if err := run(&out, args); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
	if !strings.Contains(out.String(), " 0 deliveries pending\n") || !strings.Contains(out.String(), " rows: ") {
		t.Errorf("it says %q", &out)
	}
	data, err := os.ReadFile(smaller)
	if err != nil {
		t.Fatal(err)
	}
	another := bytes.Replace(data, []byte("format\x00\x00\x00\x00\x00\x00\x00\x01"), []byte("format\x00\x00\x00\x00\x00\x00\x00\x02"), 1)
	if err := os.WriteFile(smaller, another, 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := run(&out, []string{"verify", smaller}); !errors.Is(err, bolt.ErrSchema) || !strings.Contains(out.String(), "schema 2, ") || !strings.Contains(out.String(), "its rows are not counted\n") {
		t.Errorf("a file of another schema: %v, %q", err, &out)
	}
	copy(data[30:], "damaged")
	if err := os.WriteFile(smaller, data, 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := run(&out, []string{"verify", smaller}); !errors.Is(err, bolt.ErrSchema) || !strings.Contains(out.String(), "page 0") || !strings.Contains(out.String(), "not counted") {
		t.Errorf("a damaged file: %v, %q", err, &out)
	}
	if err := run(&out, nil); err == nil {
		t.Error("it does something without being told what")
	}
}
