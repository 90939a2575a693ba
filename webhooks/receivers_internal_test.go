package webhooks

import (
	"fmt"
	"testing"
	"time"

	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

// The number of cached receivers is bounded. A changed webhook gets a new receiver.
func TestReceiverCache_IsBounded(t *testing.T) {
	secrets := []signing.Secret{signing.NewSecret(), signing.NewSecret()}
	kept := receivers{header: "X-Signature", agent: userAgent}
	at := time.Now()
	of := func(webhook Webhook) *receiver {
		t.Helper()
		receiver, err := kept.of(&webhook, at)
		if err != nil {
			t.Fatal(err)
		}
		return receiver
	}
	webhook := Webhook{ID: "wh_1", URL: "https://example.com/a", Secret: secrets[0]}
	first := of(webhook)
	if of(webhook) != first {
		t.Error("the receiver is not kept")
	}
	moved, rotated := webhook, webhook
	moved.URL, rotated.Secret = "https://example.com/b", secrets[1]
	for _, changed := range []Webhook{moved, rotated, webhook} {
		if got := of(changed); got == first || got.webhook.Load().URL != changed.URL || !got.webhook.Load().Secret.Equal(changed.Secret) {
			t.Errorf("the receiver is that of before")
		}
	}
	rotated.PreviousSecret, rotated.PreviousSecretExpiresAt = secrets[0], at.Add(time.Second)
	both := of(rotated)
	if again := of(rotated); again != both || !both.previous.Equal(secrets[0]) {
		t.Error("during a grace it is made again, or does not sign with the previous secret")
	}
	if at = at.Add(time.Second); !of(rotated).previous.IsZero() {
		t.Error("after the grace it signs with the previous secret")
	}
	for i := range 2 * maxReceivers {
		webhook.ID = fmt.Sprint(i)
		of(webhook)
	}
	if n := len(kept.kept); n != maxReceivers {
		t.Errorf("%d receivers are kept", n)
	}
}

// Names of receivers that have accepted events are looked up before others, and names of failing
// receivers after others.
func TestSender_RequestOfWebhook_HasItsStanding(t *testing.T) {
	s := &sender{receivers: receivers{header: signing.DefaultHeader, agent: userAgent}}
	at := time.Now()
	for _, test := range []struct {
		webhook Webhook
		want    outbound.Standing
	}{
		{Webhook{}, outbound.Untried},
		{Webhook{WebhookHealth: driver.WebhookHealth{ProvenAt: at}}, outbound.Proven},
		{Webhook{WebhookHealth: driver.WebhookHealth{FailingSince: at}}, outbound.Failing},
		{Webhook{WebhookHealth: driver.WebhookHealth{ProvenAt: at, FailingSince: at}}, outbound.Failing},
	} {
		test.webhook.URL, test.webhook.Secret, test.webhook.Account = "https://example.com/a", signing.NewSecret(), "acct_1"
		got, err := s.sign(&task{Webhook: &test.webhook, Event: EncodedEvent{ID: "evt_1", Body: []byte("{}")}}, at)
		if err != nil || got.Standing != test.want || got.Owner != "acct_1" {
			t.Errorf("webhook proven at %v, failing since %v: standing %d, owner %q, %v; want %d",
				test.webhook.ProvenAt, test.webhook.FailingSince, got.Standing, got.Owner, err, test.want)
		}
	}
}

// BenchmarkSign_ManyWebhooks signs requests to 10,000 webhooks in turn.
func BenchmarkSign_ManyWebhooks(b *testing.B) {
	event := EncodedEvent{ID: "evt_1", Body: make([]byte, 256)}
	for name, schemes := range map[string][]signing.Scheme{"v1": nil, "v1a": {signing.V1a}, "both": {signing.V1, signing.V1a}} {
		b.Run(name, func(b *testing.B) {
			s := &sender{receivers: receivers{header: signing.DefaultHeader, agent: userAgent}}
			at, list := time.Now(), make([]Webhook, 10_000)
			sign := func(w *Webhook) {
				if _, err := s.sign(&task{Webhook: w, Event: event}, at); err != nil {
					b.Fatal(err)
				}
			}
			for i := range list {
				list[i] = Webhook{ID: fmt.Sprint("wh_", i), URL: "https://example.com/a", Secret: signing.NewSecret(), Signatures: schemes}
				sign(&list[i])
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				sign(&list[i%len(list)])
			}
		})
	}
}
