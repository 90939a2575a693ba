package rows_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/rows"
)

// update calls change with a new bucket.
func update(t *testing.T, change func(bucket *bbolt.Bucket) error) {
	t.Helper()
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "rows.db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucket([]byte("bucket"))
		if err != nil {
			return err
		}
		return change(bucket)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The test checks rows at the edges of prefixes, including a prefix that no key can follow.
func TestDescend_PrefixAndAfter_ReturnsRowsBelow(t *testing.T) {
	t.Parallel()
	update(t, func(bucket *bbolt.Bucket) error {
		for _, key := range []string{"a", "ab", "ab1", "ab2", "ac", "b", "\xff1", "\xff2"} {
			if err := bucket.Put([]byte(key), []byte(key)); err != nil {
				return err
			}
		}
		for _, test := range []struct {
			prefix, after string
			want          []string
		}{
			{"ab", "", []string{"ab2", "ab1", "ab"}},
			{"ab", "2", []string{"ab1", "ab"}},
			{"ab", "3", []string{"ab2", "ab1", "ab"}},
			{"ab", "0", []string{"ab"}},
			{"\xff", "", []string{"\xff2", "\xff1"}},
			{"", "ab", []string{"a"}},
			{"x", "", nil},
		} {
			var got []string
			for tail, value := range rows.Descend(bucket, []byte(test.prefix), test.after) {
				if test.prefix+string(tail) != string(value) {
					t.Errorf("Descend(%q, %q): got the rest %q of key %q", test.prefix, test.after, tail, value)
				}
				got = append(got, string(value))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("Descend(%q, %q) (-want +got):\n%s", test.prefix, test.after, diff)
			}
		}
		if n := rows.Count(bucket, []byte("a")); n != 5 {
			t.Errorf("Count = %d, want 5", n)
		}
		if diff := cmp.Diff([][]byte{[]byte("ab"), []byte("ab1")}, rows.Keys(bucket, []byte("ab"), 2)); diff != "" {
			t.Errorf("Keys (-want +got):\n%s", diff)
		}
		return nil
	})
}

// The test checks Last in a bucket whose leaves are all empty, where bbolt's Cursor.Last does not
// return.
func TestLast_LeavesEmpty_Returns(t *testing.T) {
	t.Parallel()
	key := func(i int) []byte { return fmt.Appendf(nil, "%0100d", i) }
	db, err := bbolt.Open(filepath.Join(t.TempDir(), "rows.db"), 0o600, &bbolt.Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	name := []byte("bucket")
	err = db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucket(name)
		for i := range 200 {
			if err == nil {
				err = bucket.Put(key(i), nil)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(name)
		if k, _ := rows.Last(bucket.Cursor()); string(k) != string(key(199)) {
			t.Errorf("Last = %q, want the greatest key", k)
		}
		for i := range 200 {
			if err := bucket.Delete(key(i)); err != nil {
				return err
			}
		}
		if k, _ := rows.Last(bucket.Cursor()); k != nil {
			t.Errorf("Last = %q, want none", k)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
