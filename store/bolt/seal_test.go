package bolt_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/webhooks"
)

// ring returns a Keyring of keys that are all of one byte.
func ring(t *testing.T, bytesOfKeys string) *signing.Keyring {
	t.Helper()
	var keys [][]byte
	for i := range len(bytesOfKeys) {
		keys = append(keys, bytes.Repeat([]byte{bytesOfKeys[i]}, signing.KeySize))
	}
	ring, err := signing.NewKeyring(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// TestSealing goes through the life of a file: in plain, sealed, under another key,
// and opened with the wrong keys on the way.
func TestSealing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	var all []webhooks.Webhook
	use := func(what string, options ...bolt.Option) {
		t.Helper()
		s, err := bolt.Open(path, options...)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer func() { _ = s.Close() }()
		var made sync.WaitGroup
		for range 1200 { // more than one step
			w := webhooks.Webhook{
				ID: fmt.Sprintf("wh_%05d", len(all)), Account: fmt.Sprint("acct_", len(all)%7), URL: "https://example.com/", WebhookHealth: webhooks.WebhookHealth{Active: true},
				Events: []webhooks.EventType{webhooks.TypeBalanceLow}, Secret: signing.NewSecret(),
				PreviousSecret: signing.NewSecret(),
			}
			made.Go(func() {
				if err := s.CreateWebhook(t.Context(), w, webhooks.CreateOptions{}); err != nil {
					t.Error(err)
				}
			})
			all = append(all, w)
		}
		made.Wait()
		for _, w := range all {
			got, err := s.WebhookByID(t.Context(), w.Account, w.ID)
			if err != nil || !got.Secret.Equal(w.Secret) || !got.PreviousSecret.Equal(w.PreviousSecret) {
				t.Fatalf("%s: the secrets of %s are not what they were: %v", what, w.ID, err)
			}
		}
	}
	refused := func(what string, options ...bolt.Option) {
		t.Helper()
		s, err := bolt.Open(path, options...)
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, signing.ErrSealed) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v; want ErrSealed, and the file named", what, err)
		}
	}
	use("in plain")
	use("sealed", bolt.Sealed(ring(t, "a")))
	refused("without keys")
	refused("with another key", bolt.Sealed(ring(t, "b")))
	use("under a new key", bolt.Sealed(ring(t, "ba")))
	use("without the old key", bolt.Sealed(ring(t, "b")))
	refused("with the old key only", bolt.Sealed(ring(t, "a")))
}

// TestSealedFile looks for secrets in a file that was sealed from the beginning.
func TestSealedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := bolt.Open(path, bolt.Sealed(ring(t, "k")))
	if err != nil {
		t.Fatal(err)
	}
	first, second := signing.NewSecret(), signing.NewSecret()
	err = s.CreateWebhook(t.Context(), webhooks.Webhook{ID: "wh_1", Account: "acct", URL: "https://example.com/", Secret: first}, webhooks.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.UpdateWebhook(t.Context(), "acct", "wh_1", func(w *webhooks.Webhook, _ *audit.Entry) error {
		w.Secret, w.PreviousSecret = second, w.Secret
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []signing.Secret{first, second} {
		text := strings.TrimPrefix(secret.Reveal(), "whsec_")
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(file, []byte(text)) || bytes.Contains(file, raw) || !bytes.Contains(file, []byte("https://example.com/")) {
			t.Error("the file shows the secret, or not what it should")
		}
	}
}
