package bolt

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// TestAccounts_RowsOutOfOrder_ReturnsError: a loop that seeks from row to row ends also where a
// seek leads back to the row that it began at, as it does in a page whose rows are not in order.
func TestAccounts_RowsOutOfOrder_ReturnsError(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(bucketKeyIDs).Put(bytes.Repeat([]byte{0xfe}, 12), nil) // its length is none
	}); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := s.Accounts(context.Background(), "", 10)
		answered <- err
	}()
	select {
	case err := <-answered:
		if err == nil {
			t.Error("Accounts: got no error, want one")
		}
		_ = s.Close()
	case <-time.After(10 * time.Second):
		t.Error("Accounts did not return") // nor would Close
	}
}
