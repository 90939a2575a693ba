package storetest

import (
	"strings"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// priorities tests what ClaimDeliveries says of what was recovered.
func priorities(run runner) {
	one := webhooks.Claim{Limit: 1, Cap: each(99), Lease: longLease}

	// recovered makes a webhook of its own account with n deliveries that are
	// recovered, named "event", due since some milliseconds.
	recovered := func(t *tester, id string, n int) {
		t.Helper()
		t.dead(id, id, n)
		t.createRecoveries(newRecovery(id, id, id, webhooks.Dead))
		t.advance(9)
		time.Sleep(3 * time.Millisecond)
	}
	// wantNext claims one by one those of events whose ids begin so.
	wantNext := func(t *tester, claim webhooks.Claim, events ...string) (tasks []webhooks.Task) {
		t.Helper()
		for i, prefix := range events {
			next := t.claim(claim)
			if len(next) != 1 || !strings.HasPrefix(next[0].Event.ID, prefix) {
				t.Fatalf("claimed %d deliveries as number %d, want one of %s", len(next), i, prefix)
			}
			tasks = append(tasks, next...)
		}
		return tasks
	}

	run("what was recovered comes after all that was not: of its own webhook", func(t *tester) {
		recovered(t, "a", 2)
		t.enqueue(newEvent("a", "live 1"), 1)
		t.enqueue(newEvent("a", "live 2"), 1)
		for _, task := range wantNext(t, one, "live", "live") {
			t.settle(settlement(task, webhooks.Deliver))
		}
		wantNext(t, one, "event")
		t.enqueue(newEvent("a", "live 3"), 1)
		wantNext(t, one, "live 3", "event")
	})

	run("of the others", func(t *tester) {
		recovered(t, "a", 5)
		t.createWebhooks(newWebhook("b", "b"), newWebhook("c", "c"))
		t.enqueueMany("b", 2, 1)
		t.enqueueMany("c", 2, 1)
		counts := map[string]int{}
		for range 2 {
			for _, task := range t.claim(webhooks.Claim{Limit: 2, Cap: each(99), Lease: longLease}) {
				counts[task.Webhook.ID]++
			}
		}
		wantSame(t, "number of tasks", counts, map[string]int{"b": 2, "c": 2})
		wantSame(t, "number of tasks left", t.claimCounts(webhooks.Claim{Limit: 99}), map[string]int{"a": 5})
	})

	run("and of its own webhook, if that is named", func(t *tester) {
		recovered(t, "a", 2)
		t.enqueue(newEvent("a", "live"), 1)
		wantNext(t, webhooks.Claim{Limit: 1, Lease: longLease, Webhooks: []string{"a"}}, "live", "event", "event")
	})

	run("also after it was given back, tried, or its lease ran out", func(t *tester) {
		recovered(t, "a", 3)
		tasks := t.claimAll(3)
		t.settle(settlement(tasks[0], webhooks.Release), settlement(tasks[1], webhooks.Retry), settlement(tasks[2], webhooks.Release))
		time.Sleep(3 * time.Millisecond)
		t.await(1, webhooks.Claim{Limit: 1, Cap: each(99), Lease: shortLease})
		time.Sleep(2 * shortLease)
		t.enqueue(newEvent("a", "live 1"), 1)
		t.enqueue(newEvent("a", "live 2"), 1)
		wantNext(t, one, "live", "live")
		t.await(3, one)
	})

	run("but not after it was settled and redelivered", func(t *tester) {
		recovered(t, "a", 3)
		for _, task := range t.claimAll(3) {
			t.settle(settlement(task, webhooks.GiveUp))
		}
		t.must(t.store.Redeliver(t.Context(), "a", "a", numbered("event", 1), notices.Notice{}))
		time.Sleep(3 * time.Millisecond)
		t.enqueue(newEvent("a", "live"), 1)
		wantNext(t, one, numbered("event", 1), "live")
	})

	run("what is not due yet does not keep it waiting", func(t *tester) {
		recovered(t, "a", 2)
		t.enqueue(newEvent("a", "live"), 1)
		later := settlement(wantNext(t, one, "live")[0], webhooks.Retry)
		later.RetryAfter = time.Hour
		t.settle(later)
		wantNext(t, one, "event", "event")
		t.claimAll(0)
	})

	run("caps are for both together", func(t *tester) {
		recovered(t, "a", 5)
		for i := range 5 {
			t.enqueue(newEvent("a", numbered("live", i)), 1)
		}
		for _, claim := range []webhooks.Claim{
			{Limit: 99, Cap: each(7)}, {Limit: 99, PerAccount: 7}, {Limit: 99, Cap: caps(1, map[string]int{"a": 7})},
			only(webhooks.Claim{Limit: 99}, map[string]int{"a": 7}), {Limit: 99, Cap: each(0)},
		} {
			claim.Lease = longLease
			most := 7
			if claim.Cap != nil {
				most = claim.Cap("a", true)
			}
			tasks := t.claim(claim)
			wantSame(t, "number of tasks", len(tasks), most)
			wantSame(t, "number of tasks again", len(t.claim(claim)), 0)
			live := 0
			for _, task := range tasks {
				if task.Before == 0 {
					live++
				}
				t.settle(settlement(task, webhooks.Release))
			}
			wantSame(t, "live ones among them", live, min(most, 5))
		}
	})

	run("recovered ones take turns as well", func(t *tester) {
		t.dead("a", "a", 9)
		t.dead("b", "b", 3)
		t.createRecoveries(newRecovery("a", "a", "a", webhooks.Dead), newRecovery("b", "b", "b", webhooks.Dead))
		t.advance(9)
		for n := range 6 {
			counts := t.claimCounts(webhooks.Claim{Limit: 2, Cap: each(99)})
			want := map[string]int{"a": 1, "b": 1}
			if n >= 3 {
				want = map[string]int{"a": 2}
			}
			wantSame(t, "number of tasks", counts, want)
		}
	})
}
