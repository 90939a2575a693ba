package bolt

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// TestRestoreWithSparePages: a fence that changes more than the free pages of the backup have room for is
// applied as any other, and each thing it does is reported once.
func TestRestoreWithSparePages(t *testing.T) {
	const many, gone, hooks = 10_000, 3000, 10
	s, abandoned := newPurged(t)
	hash := func(i int) apikeys.Hash { return apikeys.Hash{Sum: sha256.Sum256(fmt.Append(nil, i))} }
	ctx := context.Background()
	id := func(i int) string { return fmt.Sprintf("key_%026d", i) }
	noError := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	noError(s.writer.Run(ctx, func(b *batch) error {
		for i := range many {
			key := apikeys.Key{ID: id(i), Account: "acct", Hash: hash(i), Name: strings.Repeat("n", 100), Scopes: scopes.All(), CreatedAt: time.Now()}
			if err := putKey(b, key, apikeys.Key{}); err != nil {
				return err
			}
		}
		return nil
	}))
	for i := range hooks {
		noError(s.CreateWebhook(ctx, webhooks.Webhook{ID: fmt.Sprintf("wh_%026d", i), Account: "acct", URL: "https://example.com", WebhookHealth: webhooks.WebhookHealth{Active: true}}, webhooks.CreateOptions{}))
	}
	purgeEverything(t, s) // which makes spare pages of those that are free again
	backup := filepath.Join(t.TempDir(), "backup.db")
	file, err := os.Create(backup)
	noError(err)
	_, err = s.Backup(ctx, file)
	noError(errors.Join(err, file.Close()))
	var deleted []Ref
	for i := range gone {
		deleted = append(deleted, Ref{"acct", id(i)})
	}
	noError(s.writer.Run(ctx, func(b *batch) error {
		for _, r := range deleted {
			row := record.Prefixed(r.Account, r.ID)
			key, _, err := keyByID(b.tx, row)
			if err := errors.Join(err, s.removeKey(b, row, key)); err != nil {
				return err
			}
		}
		return nil
	}))
	noError(s.Close())
	for name, fence := range map[string]Fence{"lists": {DeletedKeys: deleted}, "the abandoned file": {Abandoned: abandoned}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "storage.db")
			reported := 0
			fence.Report = func(Finding) { reported++ }
			info, err := Restore(path, backup, fence)
			if err != nil {
				t.Fatal(err)
			}
			if info.KeysDeleted != gone || info.WebhooksHeld != hooks || reported != gone {
				t.Errorf("%d of %d keys were deleted, %d of %d webhooks put on hold, and %d things reported", info.KeysDeleted, gone, info.WebhooksHeld, hooks, reported)
			}
			s, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			alive := 0
			for i := range gone {
				if _, err := s.KeyByHash(ctx, hash(i)); err == nil {
					alive++
				}
			}
			if alive > 0 {
				t.Errorf("%d keys that were revoked are alive", alive)
			}
		})
	}
}
