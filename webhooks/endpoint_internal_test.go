package webhooks

import (
	"fmt"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
)

// Endpoints are few, and are made anew when the webhook changes.
func TestEndpointsAreBounded(t *testing.T) {
	secrets := []signing.Secret{signing.NewSecret(), signing.NewSecret()}
	kept, at := endpoints{kept: make(map[string]*endpoint)}, time.Now()
	of := func(webhook Webhook) *endpoint {
		t.Helper()
		endpoint, err := kept.of(&webhook, "X-Signature", at)
		if err != nil {
			t.Fatal(err)
		}
		return endpoint
	}
	webhook := Webhook{ID: "wh_1", URL: "https://example.com/a", Secret: secrets[0]}
	first := of(webhook)
	if of(webhook) != first {
		t.Error("the endpoint is not kept")
	}
	moved, rotated := webhook, webhook
	moved.URL, rotated.Secret = "https://example.com/b", secrets[1]
	for _, changed := range []Webhook{moved, rotated, webhook} {
		if got := of(changed); got == first || got.webhook.URL != changed.URL || !got.webhook.Secret.Equal(changed.Secret) {
			t.Errorf("the endpoint is that of before")
		}
	}
	rotated.PreviousSecret, rotated.PreviousSecretExpiresAt = secrets[0], at.Add(time.Second)
	both := of(rotated)
	if again := of(rotated); again != both || !both.previous.Equal(secrets[0]) {
		t.Error("during a grace it is made anew, or does not sign with the previous secret")
	}
	if at = at.Add(time.Second); !of(rotated).previous.IsZero() {
		t.Error("after the grace it signs with the previous secret")
	}
	for i := range 2 * maxEndpoints {
		webhook.ID = fmt.Sprint(i)
		of(webhook)
	}
	if n := len(kept.kept); n != maxEndpoints {
		t.Errorf("%d endpoints are kept", n)
	}
}
