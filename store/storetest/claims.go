package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// claimDeliveries tests ClaimDeliveries, but for turns, waits and leases.
func claimDeliveries(run runner) {
	run("no tasks is not an error", func(t *tester) {
		t.claimAll(0)
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.claimAll(0)
		t.enqueue(newEvent("acct", "event"), 1)
		t.claimAll(1)
		t.claimAll(0)
	})

	run("at most Limit", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.enqueueMany("acct", 5, 2)
		seen := map[[2]string]bool{}
		for _, want := range []int{1, 2, 4, 3, 0} { // 10 in all
			tasks := t.claim(webhooks.Claim{Limit: max(1, want), Cap: each(100), Lease: longLease})
			wantSame(t, "number of tasks", len(tasks), want)
			for _, task := range tasks {
				seen[[2]string{task.Event.ID, task.Webhook.ID}] = true
			}
		}
		wantSame(t, "deliveries seen", len(seen), 10)
	})

	run("never more than Cap leased, earlier claims included", func(t *tester) {
		t.createWebhooks(newWebhook("a", "a"), newWebhook("b", "b"))
		t.enqueueMany("a", 10, 1)
		t.enqueueMany("b", 2, 1)
		claim := func(perWebhook int) (ofA []webhooks.Task) {
			for _, task := range t.claim(webhooks.Claim{Limit: 100, Cap: each(perWebhook), Lease: longLease}) {
				if task.Webhook.ID == "a" {
					ofA = append(ofA, task)
				}
			}
			return ofA
		}
		first := claim(3)
		wantSame(t, "of a at first", len(first), 3)
		wantSame(t, "of a again", len(claim(3)), 0)
		wantSame(t, "of a with a lower cap", len(claim(1)), 0)
		wantSame(t, "of a with a higher cap", len(claim(5)), 2)
		t.settle(settlement(first[0], webhooks.Deliver), settlement(first[1], webhooks.GiveUp), settlement(first[2], webhooks.Deliver))
		wantSame(t, "of a after three ended", len(claim(4)), 2)
		wantSame(t, "of a with no cap to speak of", len(claim(100)), 3)
	})

	run("retrying and releasing make room", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 6, 1)
		claim := webhooks.Claim{Limit: 100, Cap: each(2), Lease: longLease}
		tasks := t.claim(claim)
		later := settlement(tasks[0], webhooks.Retry)
		later.RetryAfter = time.Hour
		t.settle(later, settlement(tasks[1], webhooks.Release))
		wantSame(t, "number of tasks", len(t.claim(claim)), 2)
	})

	run("inactive webhooks are passed over", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.enqueueMany("acct", 2, 2)
		t.setActive("acct", "a", false)
		for _, task := range t.claimAll(2) {
			wantSame(t, "Task.Webhook.ID", task.Webhook.ID, "b")
		}
		t.setActive("acct", "a", true)
		for _, task := range t.claimAll(2) {
			wantSame(t, "Task.Webhook.ID", task.Webhook.ID, "a")
			wantSame(t, "Task.Attempt", task.Attempt, 1)
		}
	})

	run("what became due while inactive waits until it is active again", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		tasks := t.claimAll(2)
		t.setActive("acct", "webhook", false)
		t.settle(settlement(tasks[0], webhooks.Retry), settlement(tasks[1], webhooks.Release))
		t.claimAll(0)
		t.setActive("acct", "webhook", false) // once more changes nothing
		t.claimAll(0)
		t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) { w.URL = "changed" })
		t.claimAll(0)
		t.setActive("acct", "webhook", true)
		t.await(2, webhooks.Claim{Limit: 9, Lease: longLease})
	})

	run("a webhook that was made inactive starts when it is active", func(t *tester) {
		w := newWebhook("acct", "webhook")
		w.Active = false
		t.createWebhooks(w)
		t.enqueue(newEvent("acct", "missed"), 0)
		t.setActive("acct", "webhook", true)
		t.enqueue(newEvent("acct", "event"), 1)
		wantSame(t, "Task.Event.ID", t.claimAll(1)[0].Event.ID, "event")
	})

	run("a task holds the webhook as it is", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "event"), 1)
		changed := t.updateWebhook("acct", "webhook", func(w *webhooks.Webhook) {
			w.URL, w.Events = "changed", []webhooks.EventType{webhooks.TypeFilesExpiring}
		})
		wantSame(t, "Task.Webhook", *t.claimAll(1)[0].Webhook, changed)
	})

	run("a task holds the webhook as others see it already", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueue(newEvent("acct", "event"), 1)
		t.settle(settlement(t.claimAll(1)[0], webhooks.Release))
		for i := range 50 {
			url, ended := numbered("url", i), make(chan error, 1)
			go func() {
				_, err := t.store.UpdateWebhook(t.Context(), "acct", "webhook", func(w *webhooks.Webhook, _ *notices.Notice) error {
					w.URL = url
					return nil
				})
				ended <- err
			}()
			for end := time.Now().Add(patience); t.webhook("acct", "webhook").URL != url; {
				if time.Now().After(end) {
					t.Fatal("the change is never seen")
				}
			}
			task := t.claimAll(1)[0]
			wantSame(t, "Task.Webhook.URL", task.Webhook.URL, url)
			t.must(<-ended)
			t.settle(settlement(task, webhooks.Release))
		}
	})

	run("tokens are unique", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.enqueueMany("acct", 10, 2)
		seen := map[uint64]bool{}
		for range 3 {
			for _, task := range t.claimAll(20) {
				if seen[task.Token] {
					t.Fatalf("token %d was given out twice", task.Token)
				}
				seen[task.Token] = true
				t.settle(settlement(task, webhooks.Release))
			}
		}
	})
}

// claimRaces tests what the contract says when many claim at once.
func claimRaces(run runner) {
	run("no delivery is leased twice, no webhook has more than its cap", func(t *tester) {
		const hooks, events, perWebhook = 5, 40, 3
		for i := range hooks {
			t.createWebhooks(newWebhook("acct", numbered("webhook", i)))
		}
		t.enqueueMany("acct", events, hooks)
		book := ledger{leased: map[string]map[string]bool{}, done: map[string]int{}}
		inParallel(4, func(worker int) {
			turn, progress := worker, time.Now()
			for book.count() < hooks*events && time.Since(progress) < patience {
				tasks, _, err := t.store.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 1 + worker, Cap: each(perWebhook), Lease: longLease})
				t.wantError("ClaimDeliveries", err, nil)
				book.claimed(t.T, tasks, perWebhook)
				var settlements []webhooks.Settlement
				for _, task := range tasks {
					settlements = append(settlements, settlement(task, webhooks.Outcome(turn%4)))
					turn++
				}
				book.settling(settlements)
				stale, err := t.store.SettleDeliveries(t.Context(), settlements)
				if err != nil || len(stale) != 0 {
					t.Errorf("SettleDeliveries = %v, %v, want none stale", stale, err)
				}
				if len(tasks) > 0 {
					progress = time.Now()
				}
			}
		})
		wantSame(t, "deliveries settled", book.count(), hooks*events)
		for name, n := range book.done {
			if n != 1 {
				t.Errorf("%s was settled %d times", name, n)
			}
		}
		t.claimAll(0)
	})

	run("of many who settle one claim, one does", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 20, 1)
		for _, task := range t.claimAll(20) {
			settled := make([]bool, 4)
			inParallel(len(settled), func(i int) {
				stale, err := t.store.SettleDeliveries(t.Context(), []webhooks.Settlement{settlement(task, webhooks.Deliver)})
				t.wantError("SettleDeliveries", err, nil)
				settled[i] = len(stale) == 0
			})
			if n := countTrue(settled); n != 1 {
				t.Errorf("one claim was settled %d times", n)
			}
			wantSame(t, "number of attempts", len(t.delivery("acct", task.Event.ID).Attempts), 1)
		}
	})

	run("nothing is claimed after a webhook was deleted or turned off", func(t *tester) {
		for round := range 10 {
			account := numbered("acct", round)
			t.createWebhooks(newWebhook(account, account+" deleted"), newWebhook(account, account+" off"))
			t.enqueueMany(account, 10, 2)
			inParallel(2, func(i int) {
				if i == 0 {
					t.wantError("DeleteWebhook", t.store.DeleteWebhook(t.Context(), account, account+" deleted", nil, notices.Notice{}), nil)
					_, err := t.store.UpdateWebhook(t.Context(), account, account+" off", turnOff)
					t.wantError("UpdateWebhook", err, nil)
				}
				for range 5 {
					tasks, _, err := t.store.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 2, Cap: each(9), Lease: longLease})
					t.wantError("ClaimDeliveries", err, nil)
					if i == 0 && len(tasks) != 0 {
						t.Errorf("claimed %d deliveries of webhooks deleted or turned off", len(tasks))
					}
				}
			})
		}
	})
}

// A ledger checks what several workers claim and settle.
type ledger struct {
	mu     sync.Mutex
	leased map[string]map[string]bool // event ids by webhook id
	done   map[string]int             // by webhook and event id
}

func (l *ledger) claimed(t *testing.T, tasks []webhooks.Task, perWebhook int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, task := range tasks {
		events := l.leased[task.Webhook.ID]
		if events == nil {
			events = map[string]bool{}
			l.leased[task.Webhook.ID] = events
		}
		if events[task.Event.ID] {
			t.Errorf("%s for %s is leased twice", task.Event.ID, task.Webhook.ID)
		}
		events[task.Event.ID] = true
		if len(events) > perWebhook {
			t.Errorf("%s has %d leased, more than %d", task.Webhook.ID, len(events), perWebhook)
		}
	}
}

func (l *ledger) settling(settlements []webhooks.Settlement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range settlements {
		delete(l.leased[s.Task.Webhook.ID], s.Task.Event.ID)
		if s.Outcome == webhooks.Deliver || s.Outcome == webhooks.GiveUp {
			l.done[s.Task.Webhook.ID+" "+s.Task.Event.ID]++
		}
	}
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.done)
}
