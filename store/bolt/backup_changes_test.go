package bolt

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// The test writes over copies that differ in random pages, and over copies that are too short.
func TestChangeWriter_SomePagesDiffer_WritesOnlyThese(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(29, 6))
	data := make([]byte, copyChunk+3*copyPage+100)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	copied := bytes.Clone(data[:copyChunk+copyPage])
	want := len(data) - len(copied)
	for at := 0; at < len(copied); at += copyPage {
		if random.IntN(3) == 0 {
			copied[at+random.IntN(copyPage)] ^= 1
			want += copyPage
		}
	}
	path := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(path, copied, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	w := newChangeWriter(t.Context(), file)
	for _, part := range [][]byte{data[:copyChunk], data[copyChunk:]} {
		if n, err := w.Write(part); n != len(part) || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
	}
	if w.unsynced != want {
		t.Errorf("wrote %d bytes, want %d", w.unsynced, want)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the copy is not the data: %d bytes, %v", len(got), err)
	}
}

// When its context ends, release stops, so that an aborted backup returns at once.
func TestRelease_ContextEnds_LeavesTheRest(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	for name, test := range map[string]struct {
		ctx  context.Context
		left int64
	}{"whole": {t.Context(), 0}, "ended": {ended, copyFree + 1}} {
		file, err := os.Create(filepath.Join(t.TempDir(), "copy"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }()
		if err := file.Truncate(2*copyFree + 1); err != nil {
			t.Fatal(err)
		}
		release(test.ctx, file)
		if info, err := file.Stat(); err != nil || info.Size() != test.left {
			t.Errorf("%s: %d bytes are left, want %d: %v", name, info.Size(), test.left, err)
		}
	}
}
