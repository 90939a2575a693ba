package webhooks_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// The new secret is valid at once, and the previous secret until the end of the grace period. At
// most two secrets are valid.
func TestRotateSecret(t *testing.T) {
	clock := testclock.At(noon.Add(1_700_000))
	store := memory.New()
	service := newService(t, store, webhooks.Config{Now: clock.Now})
	made := subscribe(t, service, anyURL)
	check := func(what string, got, want webhooks.Webhook) {
		t.Helper()
		read, err := service.Get(t.Context(), account, made.ID)
		got.Version, want.Version = read.Version, read.Version
		got.SecretsVersion, want.SecretsVersion = read.SecretsVersion, read.SecretsVersion
		listed, _ := service.List(t.Context(), account, webhooks.WebhookQuery{Limit: 1})
		if diff := cmp.Diff([]webhooks.Webhook{want, want, want}, append(listed.Webhooks, got, read)); err != nil || diff != "" {
			t.Errorf("%s (-want +got), %v:\n%s", what, err, diff)
		}
	}
	rotate := func(grace time.Duration) webhooks.Webhook {
		t.Helper()
		got, err := service.RotateSecret(t.Context(), account, made.ID, webhooks.RotateParams{Grace: grace})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	first := rotate(time.Hour)
	if first.Secret.IsZero() || first.Secret.Equal(made.Secret) {
		t.Error("there is no new secret")
	}
	want := made
	want.Secret, want.PreviousSecret, want.PreviousSecretExpiresAt = first.Secret, made.Secret, noon.Add(time.Hour+time.Millisecond)
	check("rotated", first, want)

	second := rotate(2 * time.Hour)
	want.Secret, want.PreviousSecret, want.PreviousSecretExpiresAt = second.Secret, first.Secret, noon.Add(2*time.Hour+time.Millisecond)
	check("rotated again", second, want)

	clock.Set(want.PreviousSecretExpiresAt.Add(-1))
	check("at the end of the grace", want, want)
	clock.Set(want.PreviousSecretExpiresAt)
	want.PreviousSecret, want.PreviousSecretExpiresAt = signing.Secret{}, time.Time{}
	check("after the grace", want, want)
	_, err := service.Update(t.Context(), account, made.ID, webhooks.UpdateParams{If: func(before, after webhooks.Webhook) error {
		want.Version, want.SecretsVersion = before.Version, before.SecretsVersion
		if diff := cmp.Diff([]webhooks.Webhook{want, want}, []webhooks.Webhook{before, after}); diff != "" {
			t.Errorf("a condition is shown what has expired (-want +got):\n%s", diff)
		}
		return nil
	}})
	if stored, storeErr := store.WebhookByID(t.Context(), account, made.ID); err != nil || storeErr != nil || !stored.PreviousSecret.IsZero() {
		t.Errorf("a dead secret is kept: %v, %v", err, storeErr)
	}

	if text := fmt.Sprintf("%v %+v %#v", second, &second, second); strings.Contains(text, strings.TrimPrefix(second.PreviousSecret.Reveal(), "whsec_")) {
		t.Error("a webhook prints its previous secret")
	}
	third := rotate(0)
	want.Secret = third.Secret
	check("rotated without a grace", third, want)
	_, err = service.RotateSecret(t.Context(), account, made.ID, webhooks.RotateParams{Grace: -1})
	wantInvalid(t, err, "Grace")
}

// Both secrets sign during the grace period, and only the new secret afterwards, regardless of
// when the event was published and the attempt claimed.
func TestRotateSecret_GracePeriod_BothSecretsSign(t *testing.T) {
	var failing atomic.Bool
	failing.Store(true)
	handler := func(w http.ResponseWriter, r *http.Request) {
		if failing.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{10 * time.Minute, 20 * time.Minute, time.Hour}, Jitter: -1}}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		b.publish()
		stop := b.start()
		time.Sleep(time.Minute) // the first attempt is made with the first secret
		rotated, err := b.service.RotateSecret(b.Context(), account, webhook.ID, webhooks.RotateParams{Grace: 20 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour) // the second attempt is made after 10 min, the third after 30 min
		stop()
		secrets := map[string]signing.Secret{"old": webhook.Secret, "new": rotated.Secret}
		want := []string{"old", "new old", "new"}
		var got []string
		for _, hit := range b.hits.of("a") {
			var signed []string
			for _, name := range []string{"new", "old"} {
				if verifies(t, secrets[name], hit, b.store.bodies[0]) {
					signed = append(signed, name)
				}
			}
			if n := 1 + strings.Count(hit.header.Get("X-Service-Signature"), ","); n != len(signed) {
				t.Errorf("%d signatures, of which %v are known", n, signed)
			}
			got = append(got, strings.Join(signed, " "))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("signed by (-want +got):\n%s", diff)
		}
	})
}

// verifies reports whether a receiver with the secret accepts the request.
func verifies(t *testing.T, secret signing.Secret, hit hit, body []byte) bool {
	t.Helper()
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Secrets: []signing.Secret{secret}, Now: func() time.Time { return hit.at }})
	if err != nil {
		t.Fatal(err)
	}
	return verifier.Verify(hit.header, body) == nil
}

// If a receiver echoes the previous secret or the signatures, the attempt log contains neither.
func TestPreviousSecretIsNotLogged(t *testing.T) {
	var echo atomic.Pointer[string]
	handler := func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(*echo.Load() + r.Header.Get("X-Service-Signature") + r.Header.Get("Webhook-Signature")))
	}
	inBubble(t, webhooks.Config{}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		rotated, err := b.service.RotateSecret(b.Context(), account, webhook.ID, webhooks.RotateParams{Grace: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		echo.Store(new("old: " + webhook.Secret.Reveal() + " new: " + rotated.Secret.Reveal() + " signatures: "))
		event := b.publish()
		b.start()
		time.Sleep(time.Second)
		got := b.delivery(event).Attempts[0].Response
		if got != "old: [redacted] new: [redacted] signatures: [redacted][redacted]" {
			t.Errorf("logged %q", got)
		}
	})
}
