package bolt_test

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/bolt"
)

// TestRestoreFromAnAbandonedFileOfSchema7: the notices that were stored since the backup are taken over from a file whose
// notices are not in the log yet.
func TestRestoreFromAnAbandonedFileOfSchema7(t *testing.T) {
	const since = 5
	dir := t.TempDir()
	abandoned, backup, path := filepath.Join(dir, "abandoned.db"), filepath.Join(dir, "backup.db"), filepath.Join(dir, "storage.db")
	copyFile(t, "testdata/schema-7.db", abandoned)
	copyFile(t, abandoned, backup)
	db, err := bbolt.Open(backup, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error {
		order := tx.Bucket([]byte("audit_order"))
		for range since {
			k, value := order.Cursor().Last()
			k = slices.Clone(k)
			_, n := binary.Varint(value[1:])
			must(t, tx.Bucket([]byte("audit")).Delete(value[1+n:]))
			must(t, order.Delete(k))
		}
		return nil
	}))
	must(t, db.Close())
	info, err := bolt.Restore(path, backup, bolt.Fence{Abandoned: abandoned})
	must(t, err)
	if len(info.Unreadable) > 0 {
		t.Errorf("unreadable: %q", info.Unreadable)
	}
	wantSound(t, path)
	got, want := noticesOf(t, path), noticesOf(t, abandoned)
	if len(want) <= since {
		t.Fatalf("there are %d notices", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}

// noticesOf returns all notices of a file, by their ids.
func noticesOf(t *testing.T, path string) map[string]notices.Notice {
	t.Helper()
	s, err := bolt.Open(path, bolt.NoUpgradeCopy())
	must(t, err)
	defer func() { must(t, s.Close()) }()
	all := make(map[string]notices.Notice)
	for _, account := range []string{"", "acct_1", "acct_2"} {
		page, err := s.ListNotices(t.Context(), account, notices.Query{Limit: 1000})
		must(t, err)
		for _, n := range page.Notices {
			all[n.ID] = n
		}
	}
	return all
}
