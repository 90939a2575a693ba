package bolt

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/driver"
)

// If a transaction is undone, the accounts whose counts it changed are counted again.
func TestCounts_TransactionUndone_AreCountedAgain(t *testing.T) {
	s, err := open(filepath.Join(t.TempDir(), "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	one := driver.CreateOptions{MaxCount: 1}
	key := func(n byte) driver.Key {
		key := driver.Key{ID: fmt.Sprint("key_", n), Account: "acct"}
		key.Hash.Sum[0] = n
		return key
	}
	err = s.writer.Run(t.Context(), func(b *batch) error {
		s.keyCounts.of(b.Tx, "acct")
		s.keyCounts.add(b.Tx, "acct", 1)
		if err := putKey(b, key(1), driver.Key{}); err != nil {
			return err
		}
		return record.ErrCorrupt
	})
	if err != record.ErrCorrupt {
		t.Fatal(err)
	}
	if err := s.CreateKey(t.Context(), key(2), one); err != nil {
		t.Errorf("the first key: %v", err)
	}
	if err := s.CreateKey(t.Context(), key(3), one); err != apierr.ErrLimit {
		t.Errorf("the second key: %v, want ErrLimit", err)
	}
}
