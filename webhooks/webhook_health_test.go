package webhooks_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

func TestWebhookHealth_AfterAttempt_IsUpdated(t *testing.T) {
	begun := time.Date(2026, 3, 1, 12, 0, 0, 1_234_567, time.FixedZone("", 3600))
	at := time.Date(2026, 3, 1, 11, 0, 0, 1_000_000, time.UTC)
	early := at.Add(-time.Hour)
	fresh := driver.WebhookHealth{Active: true}
	proven := driver.WebhookHealth{Active: true, ProvenAt: early}
	failing := driver.WebhookHealth{Active: true, FailingSince: early, FailingEvent: "before"}
	again := driver.WebhookHealth{Active: true, FailingSince: early, FailingEvent: "before", FailedAgain: true, WarnedAt: early}
	off := driver.WebhookHealth{OffAt: early}
	for _, test := range []struct {
		name    string
		before  driver.WebhookHealth
		outcome driver.Effect
		class   webhooks.ErrorClass
		event   string
		off     webhooks.OffReason
		want    driver.WebhookHealth
	}{
		{name: "first delivery proves", before: fresh, outcome: driver.Deliver, want: driver.WebhookHealth{Active: true, ProvenAt: at}},
		{name: "later delivery changes nothing", before: proven, outcome: driver.Deliver, want: proven},
		{name: "delivery ends the failing", before: again, outcome: driver.Deliver, want: driver.WebhookHealth{Active: true, ProvenAt: at}},
		{
			name: "failure begins the failing", before: proven, outcome: driver.Retry, event: "event",
			want: driver.WebhookHealth{Active: true, ProvenAt: early, FailingSince: at, FailingEvent: "event"},
		},
		{
			name: "giving up does, too", before: fresh, outcome: driver.GiveUp, event: "event",
			want: driver.WebhookHealth{Active: true, FailingSince: at, FailingEvent: "event"},
		},
		{name: "same event again changes nothing", before: failing, outcome: driver.Retry, event: "before", want: failing},
		{
			name: "another event is noted", before: failing, outcome: driver.Retry, event: "event",
			want: driver.WebhookHealth{Active: true, FailingSince: early, FailingEvent: "before", FailedAgain: true},
		},
		{name: "third event changes nothing", before: again, outcome: driver.GiveUp, event: "event", want: again},
		{name: "failure of this host changes nothing", before: proven, outcome: driver.Retry, class: webhooks.ClassInternal, want: proven},
		{
			name: "a reason turns it off", before: proven, outcome: driver.GiveUp, event: "event", off: webhooks.OffGone,
			want: driver.WebhookHealth{OffReason: webhooks.OffGone, OffAt: at, ProvenAt: early, FailingSince: at, FailingEvent: "event"},
		},
		{name: "a reason does not replace a person's", before: off, outcome: driver.GiveUp, class: webhooks.ClassInternal, off: webhooks.OffGone, want: off},
	} {
		t.Run(test.name, func(t *testing.T) {
			attempt := &webhooks.Attempt{StartedAt: begun, Class: test.class}
			got := test.before.After(test.outcome, attempt, test.event, test.off)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("After (-want +got):\n%s", diff)
			}
			if got.ProvenAt != test.want.ProvenAt || got.OffAt != test.want.OffAt {
				t.Error("times are not comparable with ==, as stores return them")
			}
		})
	}
}
