package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

// failOnce attempts the one delivery, which fails and is due in an hour.
func failOnce(t *testing.T, c *queue.Claims, asked bool) {
	t.Helper()
	end := webhooks.Settlement{Task: claimOne(t, c), Outcome: webhooks.Retry, RetryAfter: time.Hour, Asked: asked}
	end.Attempt = webhooks.Attempt{Number: end.Task.Attempt, StartedAt: time.Now(), Class: webhooks.ClassStatus}
	if _, err := c.SettleDeliveries(t.Context(), []webhooks.Settlement{end}); err != nil {
		t.Fatal(err)
	}
}

func claimOne(t *testing.T, c *queue.Claims) webhooks.Task {
	t.Helper()
	tasks := claimAll(t, c)
	if len(tasks) != 1 {
		t.Fatalf("%d tasks, want 1", len(tasks))
	}
	return tasks[0]
}

func claimAll(t *testing.T, c *queue.Claims) []webhooks.Task {
	t.Helper()
	return claimUpTo(t, c, 9)
}

func claimUpTo(t *testing.T, c *queue.Claims, limit int) []webhooks.Task {
	t.Helper()
	tasks, _, err := c.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: limit, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return tasks
}

// TestOver_StaleNudge_MakesNoAttemptEarly reports a resend again once it has been attempted.
func TestOver_StaleNudge_MakesNoAttemptEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ref := newModel("a"), webhooks.DeliveryRef{WebhookID: "a", Number: 1}
		s.enqueue(ref)
		c := s.over(nil)
		defer c.Close()
		failOnce(t, c, false)
		s.feed.Nudge(ref)
		if tasks := claimAll(t, c); len(tasks) > 0 {
			t.Errorf("a stale nudge made %d attempts, want none", len(tasks))
		}
		s.rows[ref].due = time.Now()
		s.feed.Nudge(ref)
		claimOne(t, c)
	})
}

// TestOver_StaleNudgeThatIsProbed_MakesNoAttemptEarly has the webhook probed as well.
func TestOver_StaleNudgeThatIsProbed_MakesNoAttemptEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ref := newModel("a"), webhooks.DeliveryRef{WebhookID: "a", Number: 1}
		s.enqueue(ref)
		c := s.over(nil)
		defer c.Close()
		failOnce(t, c, false)
		s.feed.Nudge(ref)
		s.feed.Probe("a")
		tasks, _, err := c.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 9, Lease: time.Hour, Probes: 9})
		if err != nil || len(tasks) > 0 {
			t.Errorf("a probe of a stale nudge made %d attempts, %v; want none", len(tasks), err)
		}
	})
}

// TestOver_StaleAdd_KeepsTheWaitThatWasAskedFor reports a delivery again after a wait that its
// receiver asked for has begun: the wait is not shortened when the receiver recovers.
func TestOver_StaleAdd_KeepsTheWaitThatWasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ref := newModel("a"), webhooks.DeliveryRef{WebhookID: "a", Number: 1}
		s.enqueue(ref)
		stale := *s.rows[ref]
		c := s.over(nil)
		defer c.Close()
		failOnce(t, c, true)
		s.report(ref, &stale)
		if tasks := claimAll(t, c); len(tasks) > 0 {
			t.Errorf("a stale report made %d attempts, want none", len(tasks))
		}
		time.Sleep(2 * time.Minute)
		other := webhooks.DeliveryRef{WebhookID: "a", Number: 2}
		s.enqueue(other)
		end := webhooks.Settlement{Task: claimOne(t, c), Outcome: webhooks.Deliver}
		end.Attempt = webhooks.Attempt{Number: 1, StartedAt: time.Now()}
		if _, err := c.SettleDeliveries(t.Context(), []webhooks.Settlement{end}); err != nil {
			t.Fatal(err)
		}
		if tasks := claimAll(t, c); len(tasks) > 0 {
			t.Errorf("%d attempts within the wait, want none", len(tasks))
		}
		time.Sleep(time.Hour)
		claimOne(t, c)
	})
}

// TestOver_StaleAddOfALaterDueTime_KeepsTheSooner reports a delivery that waits for its second
// attempt, then that it was made due now, and then the first report once more.
func TestOver_StaleAddOfALaterDueTime_KeepsTheSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ref := newModel("a"), webhooks.DeliveryRef{WebhookID: "a", Number: 1}
		s.enqueue(ref)
		c := s.over(nil)
		defer c.Close()
		failOnce(t, c, false)
		stale := *s.rows[ref]
		s.rows[ref].due = time.Now()
		s.report(ref, s.rows[ref])
		s.report(ref, &stale)
		claimOne(t, c)
	})
}

// TestOver_StaleAddOfAnEarlierWebhook_IsNotSentThere reports a delivery of a webhook that has been
// deleted since and imported again under its ID, with another URL and a lower version.
func TestOver_StaleAddOfAnEarlierWebhook_IsNotSentThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ref := newModel("a"), webhooks.DeliveryRef{WebhookID: "a", Number: 1}
		c := s.over(nil)
		defer c.Close()
		if tasks := claimAll(t, c); len(tasks) > 0 {
			t.Fatalf("%d tasks, want none", len(tasks))
		}
		earlier := *s.hooks["a"]
		earlier.URL, earlier.Version = "https://earlier.example/", 7
		s.feed.Add([]webhooks.PendingDelivery{{Number: 9, Webhook: &earlier, Due: time.Now()}})
		s.enqueue(ref)
		if task := claimOne(t, c); task.Webhook.URL == earlier.URL {
			t.Errorf("the task is for %s, want the URL of the imported webhook", task.Webhook.URL)
		}
	})
}

// TestOver_DoubleOfADeliveryWhoseLeaseRanOut_KeepsTheCount reports a delivery twice, and has the
// lease of one report run out before the other is claimed.
func TestOver_DoubleOfADeliveryWhoseLeaseRanOut_KeepsTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ref := newModel("a"), webhooks.DeliveryRef{WebhookID: "a", Number: 1}
		s.enqueue(ref)
		c := s.over(nil)
		defer c.Close()
		if tasks := claimUpTo(t, c, 0); len(tasks) > 0 { // the feed begins
			t.Fatalf("%d tasks, want none", len(tasks))
		}
		s.report(ref, s.rows[ref])
		for attempt := 1; attempt < 3; attempt++ {
			if tasks := claimUpTo(t, c, 1); len(tasks) != 1 || tasks[0].Attempt != attempt {
				t.Fatalf("got %v, want one task of attempt %d", tasks, attempt)
			}
			time.Sleep(61 * time.Minute)
			s.feed.Nudge(ref)
		}
	})
}
