package storageapi_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A keyServer is a host with a mounted [storageapi.Handler.JWKS].
type keyServer struct {
	*testing.T
	api *storageapi.Handler
	mux *http.ServeMux
}

func newKeyServer(t *testing.T, config storageapi.Config) *keyServer {
	t.Helper()
	api, err := storageapi.NewHandler(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	s := &keyServer{t, api, http.NewServeMux()}
	s.mux.Handle("GET /jwks/{account}/{webhook}", api.JWKS())
	return s
}

func (s *keyServer) get(account, webhookID string) *httptest.ResponseRecorder {
	s.Helper()
	w := httptest.NewRecorder()
	s.mux.ServeHTTP(w, httptest.NewRequestWithContext(s.Context(), http.MethodGet, "/jwks/"+url.PathEscape(account)+"/"+url.PathEscape(webhookID), nil))
	return w
}

// keys returns the listed keys by their IDs.
func (s *keyServer) keys(account, webhookID string) map[string]ed25519.PublicKey {
	s.Helper()
	w := s.get(account, webhookID)
	var set struct{ Keys []struct{ Kid, X string } }
	if err := json.Unmarshal(w.Body.Bytes(), &set); w.Code != http.StatusOK || err != nil {
		s.Fatalf("got %d %s (%v), want keys", w.Code, w.Body, err)
	}
	if got := w.Header().Get("Content-Type") + " " + w.Header().Get("Cache-Control"); got != "application/jwk-set+json public, max-age=300" {
		s.Errorf("Content-Type and Cache-Control are %q", got)
	}
	keys := make(map[string]ed25519.PublicKey)
	for _, key := range set.Keys {
		x, err := base64.RawURLEncoding.DecodeString(key.X)
		if err != nil {
			s.Fatal(err)
		}
		keys[key.Kid] = x
	}
	return keys
}

// The listed keys verify the webhook's signatures by crypto/ed25519, before, during and after a
// rotation.
func TestJWKS_ListsLiveKeys(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := newKeyServer(t, storageapi.Config{Store: memory.New(), Webhooks: webhooks.Config{Now: func() time.Time { return now }}})
	const account = "acct/é 1"
	w, err := s.api.Webhooks.Create(t.Context(), account, webhooks.CreateParams{
		URL: "https://example.com", Events: []webhooks.EventType{alerts.TypeBalanceLow}, Signatures: []signing.Scheme{signing.V1a},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantKeys := func(secrets ...signing.Secret) {
		t.Helper()
		keys := s.keys(account, w.ID)
		for _, secret := range secrets {
			header := make(http.Header)
			signer, err := signing.NewSigner("", secret)
			if err != nil {
				t.Fatal(err)
			}
			if signer, err = signer.With(signing.V1a); err != nil {
				t.Fatal(err)
			}
			signer.Sign(header, "evt_1", time.Unix(1_800_000_000, 0), []byte("body"))
			signature, err := base64.StdEncoding.DecodeString(header.Get("Webhook-Signature")[len("v1a,"):])
			if key := keys[secret.PublicKey().ID()]; err != nil || len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, []byte("evt_1.1800000000.body"), signature) {
				t.Errorf("no listed key verifies: %v, %v", keys, err)
			}
		}
		if len(keys) != len(secrets) {
			t.Errorf("%d keys, want %d", len(keys), len(secrets))
		}
	}
	wantKeys(w.Secret)
	rotated, err := s.api.Webhooks.RotateSecret(t.Context(), account, w.ID, webhooks.RotateParams{Grace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	wantKeys(w.Secret, rotated.Secret)
	now = now.Add(time.Hour)
	wantKeys(rotated.Secret)

	if _, err := s.api.Erase(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	if got := s.get(account, w.ID); got.Code != http.StatusNotFound {
		t.Errorf("after the erasure: %d, want 404", got.Code)
	}
}

// Responses do not reveal whether a webhook without public keys exists.
func TestJWKS_NoPublicKeys_AnswersLikeUnknownWebhook(t *testing.T) {
	s := newKeyServer(t, storageapi.Config{Store: memory.New()})
	w, err := s.api.Webhooks.Create(t.Context(), "acct", webhooks.CreateParams{URL: "https://example.com", Events: []webhooks.EventType{alerts.TypeBalanceLow}})
	if err != nil {
		t.Fatal(err)
	}
	want := s.get("acct", "wh_unknown")
	if want.Code != http.StatusNotFound || want.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("got %d, %v", want.Code, want.Header())
	}
	for _, test := range [][2]string{{"acct", w.ID}, {"other", w.ID}, {"acct\x00", w.ID}, {"\xff", w.ID}, {"acct", w.ID + "\x00"}, {"acct", "\xff"}} {
		got := s.get(test[0], test[1])
		if got.Code != want.Code || got.Body.String() != want.Body.String() {
			t.Errorf("%q: got %d %s, want the response for an unknown webhook", test, got.Code, got.Body)
		}
	}
}

// An unreadableStore cannot read webhooks.
type unreadableStore struct{ store.Store }

func (unreadableStore) WebhookByID(context.Context, string, string) (webhooks.Webhook, error) {
	return webhooks.Webhook{}, fmt.Errorf("disk failed: %w", auth.ErrUnavailable)
}

// A failed read must not look like the absence of keys, which a receiver may cache.
func TestJWKS_StoreFails_Answers503(t *testing.T) {
	var logs testlog.Book
	s := newKeyServer(t, storageapi.Config{Store: unreadableStore{memory.New()}, Logger: logs.Logger()})
	if got := s.get("acct", "wh_1"); got.Code != http.StatusServiceUnavailable || len(logs.Lines("disk failed")) != 1 || got.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("got %d and logged %q, want 503 and one line", got.Code, logs.Lines())
	}
}
