package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// Accounts moves through the file by seeks. In a page whose rows are out of order, a seek may go
// backward; Accounts must not loop forever.
func TestAccounts_RowsOutOfOrder_ReturnsError(t *testing.T) {
	s, err := open(filepath.Join(t.TempDir(), "storage.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.db.Update(func(tx *bbolt.Tx) error {
		return tx.Bucket(schema.Accounts).Put(bytes.Repeat([]byte{0xfe}, 12), nil) // its length prefix is invalid
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
	case <-time.After(time.Minute):
		t.Error("Accounts did not return") // Close would hang, too
	}
}

// If rows are out of order, Deliver would read the same pages forever. It must report trouble
// instead.
func TestDeliver_RowsOutOfOrder_ReportsTrouble(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s := mustOpen(t, path)
	if err := s.CreateWebhook(t.Context(), testWebhook(1), driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 60 { // one row each
		if _, err := s.Enqueue(t.Context(), testEvent(i, 10)); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := s.db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	leaf, size := int(tx.Bucket(schema.Fresh).Root()), s.db.Info().PageSize
	_ = tx.Rollback()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := data[leaf*size:]
	if kind, rows := binary.NativeEndian.Uint16(page[8:]), binary.NativeEndian.Uint16(page[10:]); leaf == 0 || kind != 2 || rows < 50 {
		t.Fatalf("coverage precondition failed: page %d, of kind %d, has %d rows", leaf, kind, rows)
	}
	element := page[16+16*40:]
	clear(element[binary.NativeEndian.Uint32(element[4:]):][:8]) // the key of row 41
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, path)
	t.Cleanup(func() { _ = s.Close() })
	if trouble := awaitReports(t, recorded(t, s), "Trouble", 1)[0]; trouble.Err == nil {
		t.Error("Trouble(nil), want an error")
	}
}
