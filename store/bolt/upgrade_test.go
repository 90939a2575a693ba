package bolt_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

func init() { roles["upgrade"] = upgradeFile }

const upgradedKeys = 1000

// mark is a field that nobody knows, and that an upgrade of these tests adds to each key.
const mark = "\x64\x01x"

func addMark(value []byte) ([]byte, error) {
	return append(append([]byte{}, value...), mark...), nil
}

// withMarks is an upgrade in some 50 transactions.
var withMarks = bolt.WithUpgrade("keys", upgradedKeys/50, addMark)

func upgradeFile(path string) error {
	fmt.Println("begun")
	s, err := bolt.Open(path, withMarks)
	if err != nil {
		return err
	}
	fmt.Println("done")
	return s.Close()
}

// fileOfKeys returns a file of today's schema with upgradedKeys keys.
func fileOfKeys(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "storage.db")
	s, err := bolt.Open(path)
	must(t, err)
	must(t, s.Close())
	db, err := bbolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error {
		for i := range upgradedKeys {
			key := apikeys.Key{ID: fmt.Sprintf("key_%04d", i), Account: "acct", Name: "name", Scopes: scopes.All()}
			key.Hash.Sum[0], key.Hash.Sum[1] = byte(i>>8), byte(i)
			err := errors.Join(
				tx.Bucket([]byte("keys")).Put(key.Hash.Sum[:], record.EncodeKey(&key)),
				tx.Bucket([]byte("key_ids")).Put(record.Prefixed(key.Account, key.ID), key.Hash.Sum[:]),
			)
			if err != nil {
				return err
			}
		}
		return nil
	}))
	must(t, db.Close())
	return path
}

// contents returns all that a file has, except what marks of an upgrade say.
func contents(t *testing.T, path string) map[string]string {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Minute})
	must(t, err)
	defer db.Close()
	all := make(map[string]string)
	must(t, db.View(func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			t.Error(err)
		}
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				all[fmt.Sprintf("%s %x", name, k)] = string(v)
				return nil
			})
		})
	}))
	return all
}

// checkMarked checks that each key of the file has the mark, once.
func checkMarked(t *testing.T, path string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Minute})
	must(t, err)
	defer db.Close()
	n := 0
	must(t, db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("keys")).ForEach(func(k, value []byte) error {
			if fields := record.KeyFields(value); string(fields) != mark {
				t.Errorf("key %x has the fields %q", k[:2], fields)
			}
			n++
			return nil
		})
	}))
	if n != upgradedKeys {
		t.Errorf("%d keys, want %d", n, upgradedKeys)
	}
}

// TestUpgrade keeps a copy, unless that is declined, and changes every row once.
func TestUpgrade(t *testing.T) {
	for _, declined := range []bool{false, true} {
		path := fileOfKeys(t)
		before := contents(t, path)
		version := schemaOf(t, path)
		copied := fmt.Sprintf("%s.schema-%d", path, version)
		must(t, os.WriteFile(copied+".part", []byte("of a copy that was cut short"), 0o666))
		options := []bolt.Option{withMarks}
		if declined {
			options = append(options, bolt.NoUpgradeCopy())
		}
		for range 2 {
			s, err := bolt.Open(path, options...)
			must(t, err)
			if _, err := s.KeyByID(t.Context(), "acct", "key_0999"); err != nil {
				t.Error(err)
			}
			must(t, s.Close())
		}
		checkMarked(t, path)
		if got := schemaOf(t, path); got != version+1 {
			t.Errorf("the schema is %d, want %d", got, version+1)
		}
		wantOpenError(t, path, bolt.ErrSchema, "Use that version again")
		wantOpenError(t, path, bolt.ErrSchema, copied)
		info, err := os.Stat(copied)
		if declined {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a copy that was declined: %v", err)
			}
			continue
		}
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("the copy has the mode %v", info.Mode())
		}
		if diff := cmp.Diff(before, contents(t, copied)); diff != "" {
			t.Errorf("the copy is not what was:\n%s", diff)
		}
		s, err := bolt.Open(copied)
		must(t, err)
		must(t, s.Close())
		if _, err := os.Stat(copied + ".part"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a part of a copy is left: %v", err)
		}
	}
}

// TestUpgradeCutShort fails in each transaction. The next Open goes on; the version before
// does not use the file, and the copy stays what was before the first.
func TestUpgradeCutShort(t *testing.T) {
	for cut := 0; cut <= upgradedKeys; cut += upgradedKeys / 5 {
		path := fileOfKeys(t)
		before := contents(t, path)
		version := schemaOf(t, path)
		copied := fmt.Sprintf("%s.schema-%d", path, version)
		n := 0
		failing := bolt.WithUpgrade("keys", upgradedKeys/5, func(value []byte) ([]byte, error) {
			if n++; n > cut {
				panic("cut short")
			}
			return addMark(value)
		})
		s, err := bolt.Open(path, failing)
		if cut == upgradedKeys {
			must(t, err)
			must(t, s.Close())
		} else if err == nil {
			t.Fatal("it was not cut short")
		}
		switch after := contents(t, path); {
		case cut == 0:
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("nothing was upgraded, and the file changed:\n%s", diff)
			}
		default:
			wantOpenError(t, path, bolt.ErrSchema, "newer version")
			if diff := cmp.Diff(after, contents(t, path)); diff != "" {
				t.Errorf("the version before changed the file:\n%s", diff)
			}
		}
		s, err = bolt.Open(path, withMarks)
		must(t, err)
		must(t, s.Close())
		checkMarked(t, path)
		if diff := cmp.Diff(before, contents(t, copied)); diff != "" {
			t.Errorf("the copy is not what was:\n%s", diff)
		}
		if files, err := filepath.Glob(path + "*"); err != nil || len(files) != 2 {
			t.Errorf("there are %v, %v, want the file and its copy", files, err)
		}
	}
}

// TestUpgradeKilled kills the process at any point of an upgrade until one is complete. The
// copy, once it is there, is whole.
func TestUpgradeKilled(t *testing.T) {
	path := fileOfKeys(t)
	before := contents(t, path)
	copied := fmt.Sprintf("%s.schema-%d", path, schemaOf(t, path))
	kills := 0
	for ; kills < 100; kills++ {
		lines := killAfter(t, child(t, "upgrade", filepath.Dir(path)), time.Duration(rand.Int64N(int64(25*time.Millisecond))))
		if _, err := os.Stat(copied); err == nil {
			if diff := cmp.Diff(before, contents(t, copied)); diff != "" {
				t.Fatalf("the copy is not what was:\n%s", diff)
			}
		} else if diff := cmp.Diff(before, contents(t, path)); diff != "" {
			t.Fatalf("there is no copy, and the file changed:\n%s", diff)
		}
		if len(lines) > 1 {
			break
		}
	}
	t.Logf("%d kills", kills)
	s, err := bolt.Open(path, withMarks)
	must(t, err)
	must(t, s.Close())
	checkMarked(t, path)
}

// TestUpgradeNeedsCopy: without the copy, the file stays as it is.
func TestUpgradeNeedsCopy(t *testing.T) {
	path := fileOfKeys(t)
	before := contents(t, path)
	must(t, os.MkdirAll(fmt.Sprintf("%s.schema-%d/full", path, schemaOf(t, path)), 0o700))
	if s, err := bolt.Open(path, withMarks); err == nil {
		_ = s.Close()
		t.Fatal("it was upgraded without a copy")
	}
	if diff := cmp.Diff(before, contents(t, path)); diff != "" {
		t.Errorf("the file changed:\n%s", diff)
	}
	if left, err := filepath.Glob(path + "*.part"); err != nil || len(left) > 0 {
		t.Errorf("a part of a copy is left: %v, %v", left, err)
	}
	s, err := bolt.Open(path, withMarks, bolt.NoUpgradeCopy())
	must(t, err)
	must(t, s.Close())
	checkMarked(t, path)
}
