package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

func init() { roles["open"] = openAndSay }

// TestTruncatedFile cuts off more of the file than a power loss could, and opens the rest. It uses
// a separate process, because bbolt maps the file into memory, and the system kills a process that
// reads beyond the end of a mapped file.
func TestTruncatedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for i := range 50 {
		_, err := s.Enqueue(t.Context(), driver.EncodedEvent{
			ID: fmt.Sprint("event-", i), Account: "acct", Type: alerts.TypeBalanceLow, Body: make([]byte, 8<<10),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	for _, size := range []int{1, page - 1, page, 2 * page, 3*page + 1, len(file) / 8, len(file) / 4, len(file) / 3} {
		t.Run(fmt.Sprint("cut to ", size), func(t *testing.T) {
			said := wantRefused(t, file[:size])
			if size >= 2*page && !strings.Contains(said, "truncated") {
				t.Errorf("%q does not say what is wrong", said)
			}
		})
	}
	for _, size := range []int{1, page, 2 * page} {
		t.Run(fmt.Sprint("nothing after ", size), func(t *testing.T) {
			wantRefused(t, append(bytes.Clone(file[:size]), make([]byte, len(file)-size)...))
		})
	}
}

// wantRefused checks that Open returns an error that names the file and leaves the file unchanged.
// It returns the error.
func wantRefused(t *testing.T, file []byte) string {
	dir := t.TempDir()
	path := filepath.Join(dir, "storage.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := child(t, "open", dir)
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=0") // otherwise each child takes a second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		first, _, _ := strings.Cut(said.String(), "\n")
		t.Fatalf("the process ended with %v: %s", err, first)
	}
	if !strings.Contains(said.String(), path) {
		t.Errorf("%q does not name the file", said.String())
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, file) {
		t.Errorf("the file was changed: %d bytes, %v", len(after), err)
	}
	return said.String()
}

// openAndSay opens the file and prints the error.
func openAndSay(path string) error {
	s, err := bolt.Open(path)
	if err == nil {
		_ = s.Close()
		return errors.New("it was opened")
	}
	fmt.Println(err)
	return nil
}
