package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
)

// When an older node changes a key or a webhook, it must keep the fields that a newer node added.
// It must refuse a key or webhook that has an unknown field with an odd tag.
func TestFields_OfNewerNode_AreKeptOrRefused(t *testing.T) {
	name, option := migratedSchema(t)
	s := open(t, option)
	defer func() { _ = s.Close() }()
	now := time.Now().UTC().Truncate(time.Millisecond)
	key := driver.Key{ID: "key_1", Account: "acct", Name: "name", Hint: "sak_…k3Qz", Hash: driver.Hash{Sum: [32]byte{1}}, CreatedAt: now}
	webhook := driver.Webhook{ID: "wh_1", Account: "acct", URL: "https://example.com/", Threshold: 1<<64 - 1, Secret: signing.NewSecret(), CreatedAt: now}
	if err := s.CreateKey(t.Context(), key, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateWebhook(t.Context(), webhook, driver.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	add := func(field string) {
		t.Helper()
		for _, table := range []string{"keys", "webhooks"} {
			if _, err := pool(t).Exec(t.Context(), `update `+quoted(name)+`.`+table+` set fields = fields || $1`, []byte(field)); err != nil {
				t.Fatal(err)
			}
		}
	}
	add("\x64\x01x")
	rotated, err := s.UpdateKey(t.Context(), "acct", "key_1", func(k *driver.Key, _ *audit.Entry) error {
		k.Previous, k.PreviousHint, k.Hash, k.Hint = k.Hash, k.Hint, driver.Hash{Sum: [32]byte{2}}, "sak_…2222"
		return nil
	})
	if err != nil || rotated.PreviousHint != key.Hint {
		t.Fatalf("UpdateKey = %+v, %v", rotated, err)
	}
	changed, err := s.UpdateWebhook(t.Context(), "acct", "wh_1", func(w *driver.Webhook, _ *audit.Entry) error {
		w.Active = true
		return nil
	})
	if err != nil || changed.Threshold != webhook.Threshold {
		t.Fatalf("UpdateWebhook = %+v, %v", changed, err)
	}
	rows, err := pool(t).Query(t.Context(), `select fields from `+quoted(name)+`.keys union all select fields from `+quoted(name)+`.webhooks`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	count := 0
	for rows.Next() {
		var packed []byte
		if err := rows.Scan(&packed); err != nil {
			t.Fatal(err)
		}
		count++
		var record fields.Record = new(listed.Key)
		if count == 3 {
			record = new(listed.Webhook)
		}
		if unknown := fields.Unknown(nil, string(packed), record); string(unknown) != "\x64\x01x" {
			t.Errorf("row %d keeps %q of %q", count, unknown, packed)
		}
	}
	if count != 3 {
		t.Errorf("%d rows, want two of the key and one of the webhook", count)
	}
	add("\x65\x00")
	if _, err := s.KeyByHash(t.Context(), rotated.Hash); !errors.Is(err, fields.ErrNewer) {
		t.Errorf("KeyByHash = %v, want ErrNewer", err)
	}
	if _, err := s.WebhookByID(t.Context(), "acct", "wh_1"); !errors.Is(err, fields.ErrNewer) {
		t.Errorf("WebhookByID = %v, want ErrNewer", err)
	}
}
