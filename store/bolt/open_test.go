package bolt_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/driver"
)

// wantOpenError opens path and checks that the error names the file, contains the text says and
// wraps wrapped.
func wantOpenError(t *testing.T, path string, wrapped error, says string) {
	t.Helper()
	s, err := bolt.Open(path)
	if err == nil {
		_ = s.Close()
		t.Fatalf("Open(%s) succeeded", path)
	}
	if wrapped != nil && !errors.Is(err, wrapped) {
		t.Errorf("Open = %v, which is not %v", err, wrapped)
	}
	if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), says) {
		t.Errorf("Open = %q, want the file named and %q", err, says)
	}
}

func TestFileIsOwnerOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o600 {
		t.Errorf("mode = %v, want 0600", got)
	}
}

func TestOpen_LockedFile_FailsWithinASecond(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	start := time.Now()
	wantOpenError(t, path, bolt.ErrLocked, "in use")
	if took := time.Since(start); took > time.Second {
		t.Errorf("Open took %v", took)
	}
}

// If a host starts before its predecessor has closed the file, it waits, and then sees all changes
// of its predecessor.
func TestOpen_PredecessorStillOpen_Waits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	before, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []time.Duration{-time.Hour, 0, time.Millisecond} {
		if s, err := bolt.Open(path, bolt.Wait(d)); !errors.Is(err, bolt.ErrLocked) || !strings.Contains(err.Error(), path) {
			t.Fatalf("Wait(%v): %v, %v", d, s, err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		time.Sleep(600 * time.Millisecond) // longer than the default of Wait
		err := before.CreateKey(context.Background(), driver.Key{ID: "key_1", Account: "acct_1", Hash: driver.Hash{Sum: [32]byte{1}}}, driver.CreateOptions{})
		ended <- errors.Join(err, before.Close())
	}()
	after, err := bolt.Open(path, bolt.Wait(time.Minute))
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = after.Close() }()
	if _, err := after.KeyByID(t.Context(), "acct_1", "key_1"); err != nil {
		t.Error(err)
	}
}

func TestOpen_ForeignFile_ReturnsError(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, fill func(*bbolt.Tx) error) string {
		path := filepath.Join(dir, name)
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if err := db.Update(fill); err != nil {
			t.Fatal(err)
		}
		return path
	}

	ofSchema := func(name string, version uint64) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			meta, err := tx.CreateBucket([]byte("meta"))
			if err != nil {
				return err
			}
			return meta.Put([]byte(name), binary.BigEndian.AppendUint64(nil, version))
		}
	}
	wantOpenError(t, write("newer.db", ofSchema("format", 2)), bolt.ErrSchema, "use the version that wrote the file, or a newer one")
	for version := range uint64(10) { // includes 1, which is also the number of the released schema
		path := write(fmt.Sprint("unreleased-", version), ofSchema("schema", version))
		before := rowsOf(t, path)
		wantOpenError(t, path, bolt.ErrSchema, "unreleased build")
		if err := bolt.Return(path); !errors.Is(err, bolt.ErrSchema) {
			t.Errorf("Return: %v", err)
		}
		if report, err := boltops.Verify(path, nil); !errors.Is(err, bolt.ErrSchema) || report.Counted {
			t.Errorf("Verify: %+v, %v", report, err)
		}
		if diff := cmp.Diff(before, rowsOf(t, path)); diff != "" {
			t.Errorf("the file of schema %d was changed:\n%s", version, diff)
		}
	}

	foreign := write("foreign.db", func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("users"))
		return err
	})
	wantOpenError(t, foreign, bolt.ErrSchema, "not a storageapi file")

	damaged := write("damaged.db", func(tx *bbolt.Tx) error {
		_, meta := tx.CreateBucket([]byte("meta"))
		_, ids := tx.CreateBucket([]byte("accounts"))
		return errors.Join(meta, ids)
	})
	wantOpenError(t, damaged, bolt.ErrSchema, "copied while it was open")

	incomplete := filepath.Join(dir, "incomplete.db")
	s, err := bolt.Open(incomplete)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	write("incomplete.db", func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("keys_expiring")) })
	wantOpenError(t, incomplete, bolt.ErrSchema, "the bucket keys_expiring is missing")

	text := filepath.Join(dir, "notes.txt")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	wantOpenError(t, text, bolt.ErrSchema, "not a storageapi file")
	wantOpenError(t, dir, nil, "")
	wantOpenError(t, filepath.Join(dir, "no", "such", "directory.db"), fs.ErrNotExist, "")
}
