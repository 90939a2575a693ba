package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/store/bolt/boltops"
)

// backUp must keep the newest copies, each complete. A failed backup must not remove any copy.
func TestBackUp(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Path: filepath.Join(t.TempDir(), "storage.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	dir := t.TempDir()
	day := time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	for i := range 5 {
		if _, err := backUp(t.Context(), api, dir, 3, day.AddDate(0, 0, i)); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := backUp(ended, api, dir, 3, day.AddDate(0, 0, 5)); !errors.Is(err, context.Canceled) {
		t.Errorf("a backup whose context has ended: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
		report, err := boltops.Verify(filepath.Join(dir, entry.Name()), nil)
		if err = errors.Join(err, report.Err()); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(names)
	want := []string{"storage-2026-11-24T030000Z.db", "storage-2026-11-25T030000Z.db", "storage-2026-11-26T030000Z.db"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("copies (-want +got):\n%s", diff)
	}
}
