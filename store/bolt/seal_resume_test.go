package bolt

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// The test opens a file whose process was killed while it sealed the secrets. The file has a data
// key, some sealed and some plain secrets, and no mark. Open must seal the plain secrets.
func TestOpen_KilledWhileSealing_SealsTheRest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	sealer, err := signing.NewKeyring(bytes.Repeat([]byte{1}, signing.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	open := func() *engine {
		t.Helper()
		s, err := open(path, Sealed(sealer))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	s := open()
	secrets := map[string]signing.Secret{"wh_1": signing.NewSecret(), "wh_2": signing.NewSecret()}
	key := s.dataKey
	for _, id := range []string{"wh_1", "wh_2"} {
		if err := s.CreateWebhook(t.Context(), driver.Webhook{ID: id, Account: "acct", URL: "https://example.com/", Secret: secrets[id]}, driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.dataKey = nil // the second secret stays in plain text
	}
	err = s.writer.Run(context.Background(), func(b *batch) error { return b.Delete(schema.Meta, schema.MetaSealed) })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open()
	for id, secret := range secrets {
		got, err := s.WebhookByID(t.Context(), "acct", id)
		if err != nil || !got.Secret.Equal(secret) {
			t.Errorf("%s: another secret, or %v", id, err)
		}
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		if mark := tx.Bucket(schema.Meta).Get(schema.MetaSealed); !key.Current(mark) || len(mark) == 0 {
			t.Error("the mark is missing, or sealed with another data key")
		}
		return tx.Bucket(schema.Webhooks).ForEach(func(k, value []byte) error {
			if bytes.Contains(value, []byte("whsec_")) {
				t.Errorf("%q is in plain text", k)
			}
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
