package bolt_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/driver"
)

// ring returns a Keyring with one key for each byte of bytesOfKeys; each key repeats its byte.
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

// TestSealing opens a file whose secrets are in plain text, sealed, and sealed with another key. In
// between, it tries wrong keys.
func TestSealing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	var all []driver.Webhook
	use := func(what string, options ...bolt.Option) {
		t.Helper()
		s, err := bolt.Open(path, options...)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer func() { _ = s.Close() }()
		var made sync.WaitGroup
		for range 1200 { // more webhooks than one step seals
			w := driver.Webhook{
				ID: fmt.Sprintf("wh_%05d", len(all)), Account: fmt.Sprint("acct_", len(all)%7), URL: "https://example.com/", WebhookHealth: driver.WebhookHealth{Active: true},
				Events: []driver.EventType{alerts.TypeBalanceLow}, Secret: signing.NewSecret(),
				PreviousSecret: signing.NewSecret(), Headers: []driver.Header{{Name: "X-Token", Value: fmt.Sprint("token ", len(all)), Secret: true}},
			}
			made.Go(func() {
				if err := s.CreateWebhook(t.Context(), w, driver.CreateOptions{}); err != nil {
					t.Error(err)
				}
			})
			all = append(all, w)
		}
		made.Wait()
		for _, w := range all {
			got, err := s.WebhookByID(t.Context(), w.Account, w.ID)
			if err != nil || !got.Secret.Equal(w.Secret) || !got.PreviousSecret.Equal(w.PreviousSecret) || !slices.Equal(got.Headers, w.Headers) {
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
	refused("after a rotation with the old key only", bolt.Sealed(ring(t, "a")))
	use("without the old key", bolt.Sealed(ring(t, "b")))
	refused("with the old key only", bolt.Sealed(ring(t, "a")))
}

// A brokenSealer is a Sealer whose Seal or Open returns an error.
type brokenSealer struct {
	signing.Sealer
	seal, open error
}

func (s brokenSealer) Seal(ctx context.Context, plain []byte) ([]byte, error) {
	if s.seal != nil {
		return nil, s.seal
	}
	return s.Sealer.Seal(ctx, plain)
}

func (s brokenSealer) Open(ctx context.Context, sealed []byte) ([]byte, bool, error) {
	if s.open != nil {
		return nil, false, s.open
	}
	return s.Sealer.Open(ctx, sealed)
}

// If the Sealer fails, Open returns an error, and the file can be opened as before.
func TestSealed_SealerFails_ChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	unreachable := errors.New("KMS unreachable")
	opens := func(what string, options ...bolt.Option) {
		t.Helper()
		s, err := bolt.Open(path, options...)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	fails := func(what string, sealer signing.Sealer) {
		t.Helper()
		_, err := bolt.Open(path, bolt.Sealed(sealer))
		if !errors.Is(err, signing.ErrSealer) || !errors.Is(err, unreachable) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want ErrSealer, the Sealer's error, and the file named", what, err)
		}
	}
	opens("in plain text")
	fails("first Seal", brokenSealer{ring(t, "a"), unreachable, nil})
	fails("Open of what was sealed first", brokenSealer{ring(t, "a"), nil, unreachable})
	opens("in plain text again")
	opens("sealed", bolt.Sealed(ring(t, "a")))
	fails("Open", brokenSealer{ring(t, "a"), nil, unreachable})
	fails("Seal with a new key", brokenSealer{ring(t, "ba"), unreachable, nil})
	opens("sealed with the old key", bolt.Sealed(ring(t, "a")))
	opens("sealed with an unchanged key, without Seal", bolt.Sealed(brokenSealer{ring(t, "a"), unreachable, nil}))
}

type hangingSealer struct{ ever chan struct{} }

func (s hangingSealer) Seal(context.Context, []byte) ([]byte, error) { <-s.ever; return nil, nil }

func (s hangingSealer) Open(context.Context, []byte) ([]byte, bool, error) {
	<-s.ever
	return nil, false, nil
}

// If the Sealer hangs, Open returns an error and leaves the file unlocked.
func TestSealed_SealerHangs_OpenFailsAfterTimeout(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	synctest.Test(t, func(t *testing.T) {
		ever := make(chan struct{})
		defer close(ever)
		began := time.Now()
		_, err := bolt.Open(path, bolt.Sealed(hangingSealer{ever}))
		if took := time.Since(began); !errors.Is(err, signing.ErrSealer) || !errors.Is(err, context.DeadlineExceeded) || took != signing.SealerTimeout {
			t.Errorf("Open = %v after %v, want ErrSealer and DeadlineExceeded after %v", err, took, signing.SealerTimeout)
		}
	})
	s, err := bolt.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// The test searches a file that was sealed from the beginning for plain secrets.
func TestSealedFile_ContainsNoPlainSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "storage.db")
	s, err := bolt.Open(path, bolt.Sealed(ring(t, "k")))
	if err != nil {
		t.Fatal(err)
	}
	first, second := signing.NewSecret(), signing.NewSecret()
	err = s.CreateWebhook(t.Context(), driver.Webhook{ID: "wh_1", Account: "acct", URL: "https://example.com/", Secret: first}, driver.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.UpdateWebhook(t.Context(), "acct", "wh_1", func(w *driver.Webhook, _ *audit.Entry) error {
		w.Secret, w.PreviousSecret = second, w.Secret
		w.Headers = []driver.Header{{Name: "X-Token", Value: "secret of a header", Secret: true}}
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
	if bytes.Contains(file, []byte("secret of a header")) || !bytes.Contains(file, []byte("X-Token")) {
		t.Error("the file shows the value of a secret header, or not its name")
	}
}
