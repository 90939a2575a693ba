package bolt

import (
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// A change to a key or a webhook keeps record fields that a later version has added and that this
// version does not know.
func TestUnknownFields_SurviveChanges(t *testing.T) {
	const field = "\x64\x01x"
	s := openTemp(t)
	now := time.Now().UTC().Truncate(time.Millisecond)
	key := driver.Key{ID: "key_1", Account: "acct", Name: "name", Hash: driver.Hash{Sum: [32]byte{1}}, CreatedAt: now}
	webhook := driver.Webhook{ID: "wh_1", Account: "acct", URL: "https://example.com/", Secret: signing.NewSecret(), CreatedAt: now}
	keyRow, webhookRow := key.Hash.Sum[:], record.Prefixed("acct", "wh_1")
	err := together(t, s, func(b *batch) error {
		if err := putKey(b, key, driver.Key{}); err != nil {
			return err
		}
		if err := b.Put(schema.Keys, keyRow, append(record.EncodeKey(&key), field...)); err != nil {
			return err
		}
		if err := s.putWebhook(b, &webhook); err != nil {
			return err
		}
		return b.Put(schema.Webhooks, webhookRow, append(record.EncodeWebhook(&webhook, nil), field...))
	})[0]
	if err != nil {
		t.Fatal(err)
	}
	rotated := key
	rotated.Hash, rotated.Previous, rotated.PreviousExpiresAt = driver.Hash{Sum: [32]byte{2}}, key.Hash, now.Add(time.Hour)
	webhook.URL = "https://example.com/elsewhere"
	err = together(t, s, func(b *batch) error {
		if err := putKey(b, rotated, key); err != nil {
			return err
		}
		return s.putWebhook(b, &webhook)
	})[0]
	if err != nil {
		t.Fatal(err)
	}
	s.dataKey = signing.NewDataKey()
	if err := s.reseal(); err != nil {
		t.Fatal(err)
	}
	got, err := s.KeyByHash(t.Context(), rotated.Hash)
	if err != nil || got.Previous != key.Hash {
		t.Errorf("the key is %+v, %v", got, err)
	}
	if got, err := s.WebhookByID(t.Context(), "acct", "wh_1"); err != nil || got.URL != webhook.URL {
		t.Errorf("the webhook is %+v, %v", got, err)
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		if got := record.KeyFields(tx.Bucket(schema.Keys).Get(rotated.Hash.Sum[:])); string(got) != field {
			t.Errorf("the key's fields are %q", got)
		}
		if got := record.WebhookFields(tx.Bucket(schema.Webhooks).Get(webhookRow)); string(got) != field {
			t.Errorf("the webhook's fields are %q", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
