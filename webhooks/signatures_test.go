package webhooks_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/webhooks"
)

var (
	onlyV1  = []signing.Scheme{signing.V1}
	onlyV1a = []signing.Scheme{signing.V1a}
	v1V1a   = []signing.Scheme{signing.V1, signing.V1a}
)

// verifiesByKey reports whether a receiver with only the public keys accepts the request.
func verifiesByKey(t *testing.T, keys []signing.PublicKey, hit hit, body []byte) bool {
	t.Helper()
	verifier, err := signing.NewVerifier(signing.VerifierConfig{PublicKeys: keys, Now: func() time.Time { return hit.at }})
	if err != nil {
		t.Fatal(err)
	}
	return verifier.Verify(hit.header, body) == nil
}

// Each attempt is signed with the schemes that the webhook has when the attempt begins, even if
// they were changed after the event was published or first attempted.
func TestSignatures_ChangedWhileDeliveriesAreDue_AreUsedFromTheNextAttemptOn(t *testing.T) {
	var failing atomic.Bool
	failing.Store(true)
	handler := func(w http.ResponseWriter, r *http.Request) {
		if failing.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte(r.Header.Get("Webhook-Signature")))
	}
	delays := []time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute}
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: delays, Jitter: -1}}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		event := b.publish()
		b.start()
		time.Sleep(time.Minute)
		for _, schemes := range [][]signing.Scheme{v1V1a, {signing.V1a, signing.V1a}, onlyV1} {
			changed, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Signatures: schemes})
			noError(b, err)
			if got := len(changed.PublicKeys()) > 0; got != slices.Contains(schemes, signing.V1a) {
				t.Errorf("%s: has public keys: %v", schemes, got)
			}
			time.Sleep(10 * time.Minute)
		}
		var got []string
		for _, hit := range b.hits.of("a") {
			var by []string
			if verifies(t, webhook.Secret, hit, b.store.bodies[0]) {
				by = append(by, "secret")
			}
			if verifiesByKey(t, []signing.PublicKey{webhook.Secret.PublicKey()}, hit, b.store.bodies[0]) {
				by = append(by, "key")
			}
			if hit.header.Get("X-Service-Signature") != "" {
				by = append(by, "body")
			}
			got = append(got, strings.Join(by, " "))
		}
		if diff := cmp.Diff([]string{"secret body", "secret key body", "key", "secret body"}, got); diff != "" {
			t.Errorf("the attempts can be verified by (-want +got):\n%s", diff)
		}
		for _, attempt := range b.delivery(event).Attempts {
			if attempt.Response != "[redacted]" {
				t.Errorf("attempt %d logs %q", attempt.Number, attempt.Response)
			}
		}
	})
}

// During the grace period both keys sign and are listed; afterwards only the new one.
func TestSignatures_RotationBetweenRetries_BothKeysSign(t *testing.T) {
	delays := []time.Duration{10 * time.Minute, 20 * time.Minute, time.Hour}
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: delays, Jitter: -1}}, status(http.StatusServiceUnavailable), func(b *bubble) {
		webhook, err := b.service.Create(b.Context(), account, webhooks.CreateParams{URL: "https://a.example.com/", Events: onBalance, Signatures: onlyV1a})
		noError(b, err)
		b.publish()
		b.start()
		time.Sleep(time.Minute)
		rotated, err := b.service.RotateSecret(b.Context(), account, webhook.ID, webhooks.RotateParams{Grace: 20 * time.Minute})
		noError(b, err)
		before, after := webhook.Secret.PublicKey(), rotated.Secret.PublicKey()
		if diff := cmp.Diff([]string{after.String(), before.String()}, keyTexts(rotated)); diff != "" {
			t.Errorf("public keys during the rotation (-want +got):\n%s", diff)
		}
		time.Sleep(time.Hour)
		var got []string
		for _, hit := range b.hits.of("a") {
			var by []string
			for name, key := range map[string]signing.PublicKey{"old": before, "new": after} {
				if verifiesByKey(t, []signing.PublicKey{key}, hit, b.store.bodies[0]) {
					by = append(by, name)
				}
			}
			slices.Sort(by)
			got = append(got, strings.Join(by, " "))
		}
		if diff := cmp.Diff([]string{"old", "new old", "new"}, got); diff != "" {
			t.Errorf("signed by (-want +got):\n%s", diff)
		}
		now, err := b.service.Get(b.Context(), account, webhook.ID)
		noError(b, err)
		if diff := cmp.Diff([]string{after.String()}, keyTexts(now)); diff != "" {
			t.Errorf("public keys after the rotation (-want +got):\n%s", diff)
		}
	})
}

func keyTexts(w webhooks.Webhook) (texts []string) {
	for _, key := range w.PublicKeys() {
		texts = append(texts, key.String())
	}
	return texts
}

func TestSignatures_Invalid_AreRefusedByName(t *testing.T) {
	service := newClocked(t)
	made := subscribe(t, service, anyURL)
	for _, schemes := range [][]signing.Scheme{{}, {"v2"}, {signing.V1, ""}, {"V1A"}} {
		_, err := service.Create(t.Context(), account, webhooks.CreateParams{URL: anyURL, Events: onBalance, Signatures: schemes})
		wantInvalid(t, err, "signatures")
		_, err = service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{Signatures: schemes})
		wantInvalid(t, err, "signatures")
	}
	// Only an account's own webhooks are found, for any text in a URL.
	for _, other := range []string{"", "other", account + "\x00", "\xff", strings.Repeat("a", 129)} {
		if _, err := service.Get(t.Context(), other, made.ID); !errors.Is(err, apierr.ErrNotFound) {
			t.Errorf("Get for account %q = %v, want ErrNotFound", other, err)
		}
	}
}

// A webhook with a scheme that this version does not know, from an import, is not sent unsigned.
func TestSignatures_UnknownScheme_SendsNothing(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		webhook.Signatures = []signing.Scheme{"v9"}
		event := mustSeal(t, webhooks.Event{ID: "evt_1", Account: account, Data: lowBalance})
		got := b.service.Attempt(b.Context(), &webhooks.Task{Event: event, Webhook: &webhook, Attempt: 1})
		if got.Class != webhooks.ClassInternal || len(b.hits.of("")) > 0 {
			t.Errorf("attempt %+v, %d requests, want class internal and none", got, len(b.hits.of("")))
		}
	})
}
