package storageapi_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

// A backup must contain everything acknowledged before it began, including the last-used times of
// keys, which are otherwise written once a minute.
func TestHandlerBackup(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Path: filepath.Join(t.TempDir(), "storage.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	key, token, err := api.Keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "k", Scopes: scopes.Specified()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Keys.Verify(t.Context(), token.Reveal()); err != nil {
		t.Fatal(err)
	}
	var copied bytes.Buffer
	info, err := api.Backup(t.Context(), &copied)
	if err != nil || info.Bytes != int64(copied.Len()) {
		t.Fatalf("Backup = %+v, %v, of %d bytes", info, err, copied.Len())
	}
	path := filepath.Join(t.TempDir(), "restored.db")
	if err := os.WriteFile(path, copied.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	restored, err := storageapi.NewHandler(storageapi.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = restored.Close() }()
	found, err := restored.Keys.Get(t.Context(), "acct", key.ID)
	if err != nil || found.LastUsedAt.IsZero() {
		t.Errorf("the key in the backup is %+v, %v, want one that was used", found, err)
	}
	if err := api.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Backup(t.Context(), io.Discard); !errors.Is(err, storageapi.ErrClosed) {
		t.Errorf("a backup after Close: %v", err)
	}
}

func TestHandlerBackup_StoreWithoutFile_ReturnsError(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	if _, err := api.Backup(t.Context(), io.Discard); !errors.Is(err, storageapi.ErrNoBackup) {
		t.Errorf("Backup = %v, want ErrNoBackup", err)
	}
}
