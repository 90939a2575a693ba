package storetest

import (
	"slices"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// unproven tests what ClaimDeliveries says of unproven webhooks.
func unproven(run runner) {
	const many = 100

	// six makes three proven webhooks, one that has proven nothing and two that fail,
	// each of which is owed 10 deliveries.
	six := func(t *tester) {
		t.Helper()
		for _, id := range []string{"p1", "p2", "p3", "u1", "f1", "f2"} {
			w := newWebhook(id, id)
			if id[0] != 'u' {
				w.ProvenAt = some
			}
			if id[0] == 'f' {
				w.FailingSince = some
			}
			t.createWebhooks(w)
			t.enqueueMany(id, 10, 1)
		}
	}
	by := func(proven, unproven int) func(string, bool) int {
		return func(_ string, is bool) int {
			if is {
				return proven
			}
			return unproven
		}
	}
	both := func(counts map[string]int) []int {
		return []int{counts["p1"] + counts["p2"] + counts["p3"], counts["u1"] + counts["f1"] + counts["f2"]}
	}

	run("no more tasks of them than ProvenOnly leaves, no more leases than Cap says", func(t *tester) {
		six(t)
		claim := webhooks.Claim{Limit: many, Cap: by(2, 1), ProvenOnly: many - 2}
		wantSame(t, "tasks of the proven and the unproven", both(t.claimCounts(claim)), []int{6, 2})
		claim.Cap = by(3, 1)
		wantSame(t, "the same, the second time", both(t.claimCounts(claim)), []int{3, 1})
		wantSame(t, "the same, the third time", both(t.claimCounts(claim)), []int{0, 0})
		claim.Cap, claim.ProvenOnly = by(3, 3), 0
		wantSame(t, "the same, with the same caps", both(t.claimCounts(claim)), []int{0, 6})
	})

	run("none if all tasks are for proven ones, however many are due, and any number if none is", func(t *tester) {
		six(t)
		claim := webhooks.Claim{Limit: 3, Cap: each(1), ProvenOnly: 3}
		wantSame(t, "tasks of the proven and the unproven", both(t.claimCounts(claim)), []int{3, 0})
		claim.Limit, claim.ProvenOnly = many, many
		wantSame(t, "the same, of the rest", both(t.claimCounts(claim)), []int{0, 0})
		claim.ProvenOnly = 0
		wantSame(t, "the same, with 0", both(t.claimCounts(claim)), []int{0, 3})
	})

	run("ProvenOnly and Probes hold right after a claim that came back full", func(t *tester) {
		six(t)
		t.claimCounts(webhooks.Claim{Limit: 3, Cap: each(1), ProvenOnly: 3})
		claim := webhooks.Claim{Limit: many, Cap: by(3, 1), ProvenOnly: many - 2}
		wantSame(t, "tasks of the proven and the unproven", both(t.claimCounts(claim)), []int{6, 2})
		t.claimCounts(webhooks.Claim{Limit: 1, Cap: each(4), ProvenOnly: 1})
		for _, id := range []string{"p1", "p2", "p3"} {
			t.must(t.store.Probe(t.Context(), id, id))
		}
		asked := 0
		for _, task := range t.claim(webhooks.Claim{Limit: many, Cap: each(4), Probes: 2, Lease: longLease}) {
			if task.Probe {
				asked++
			}
		}
		wantSame(t, "tasks that were asked for", asked, 2)
	})

	run("Cap is asked of each", func(t *tester) {
		six(t)
		claim := webhooks.Claim{Limit: many, Cap: func(webhook string, proven bool) int {
			return caps(by(3, 1)(webhook, proven), map[string]int{"u1": 5, "f1": 0})(webhook, proven)
		}}
		wantSame(t, "number of tasks", t.claimCounts(claim), map[string]int{"p1": 3, "p2": 3, "p3": 3, "u1": 5, "f2": 1})
	})

	run("what is settled decides", func(t *tester) {
		t.createWebhooks(newWebhook("a", "a"))
		t.enqueueMany("a", 9, 1)
		proven := webhooks.Claim{Limit: many, Cap: each(1), ProvenOnly: many, Lease: longLease}
		wantSame(t, "number of tasks of what has proven nothing", len(t.claim(proven)), 0)
		t.settle(settlement(t.claim(webhooks.Claim{Limit: 1, Lease: longLease})[0], webhooks.Deliver))
		tasks := t.claim(proven)
		wantSame(t, "number of tasks once it has", len(tasks), 1)
		t.settle(settlement(tasks[0], webhooks.GiveUp))
		wantSame(t, "number of tasks after a failure", len(t.claim(proven)), 0)
		t.updateWebhook("a", "a", func(w *webhooks.Webhook) { w.FailingSince = time.Time{} })
		tasks = t.claim(proven)
		wantSame(t, "number of tasks once that is undone", len(tasks), 1)
		t.settle(settlement(tasks[0], webhooks.Deliver))
		t.updateWebhook("a", "a", func(w *webhooks.Webhook) { w.ProvenAt = time.Time{} })
		wantSame(t, "number of tasks with another URL", len(t.claim(proven)), 0)
	})

	run("many of them do not keep a proven webhook waiting", func(t *tester) {
		for i := range 30 {
			id := numbered("unproven", i)
			t.createWebhooks(newWebhook(id, id))
			t.enqueue(newEvent(id, "event"), 1)
		}
		w := newWebhook("proven", "proven")
		w.ProvenAt = some
		t.createWebhooks(w)
		t.enqueue(newEvent("proven", "event"), 1)
		claim := webhooks.Claim{Limit: 5, Cap: each(1), ProvenOnly: 4, Lease: longLease}
		for range 5 {
			for _, task := range t.claim(claim) {
				if task.Webhook.ID == "proven" {
					return
				}
			}
		}
		t.Error("five claims of 5 tasks, 1 of an unproven webhook, have none of the proven one")
	})
}

// probes tests Probe and Redeliver, which asks for one.
func probes(run runner) {
	run = claiming(run)
	// off allows nothing of the webhook but probes.
	off := webhooks.Claim{Limit: 9, Cap: caps(9, map[string]int{"webhook": 0}), Probes: 9, Lease: longLease}
	probe := func(t *tester) {
		t.Helper()
		t.must(t.store.Probe(t.Context(), "acct", "webhook"))
	}
	event := func(t *tester, tasks []webhooks.Task) (id string) {
		t.Helper()
		for _, task := range tasks {
			if !task.Probe {
				t.Errorf("claimed %s, which nobody asked for", task.Event.ID)
			}
			id += task.Event.ID
		}
		return id
	}

	run("has the next claim lease one, whatever Cap and Rest say", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 5, 1)
		end := settlement(t.claim(webhooks.Claim{Limit: 1, Lease: longLease})[0], webhooks.GiveUp)
		end.Rest = time.Hour
		t.settle(end)
		wantSame(t, "claimed before", event(t, t.claim(off)), "")
		probe(t)
		none := off
		none.Probes = 0
		wantSame(t, "claimed with Probes at 0", event(t, t.claim(none)), "")
		wantSame(t, "claimed", event(t, t.claim(off)), numbered("event", 1))
		wantSame(t, "claimed after that", event(t, t.claim(off)), "")
	})

	run("one a second at most, and calls before it ask for nothing more", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 5, 1)
		probe(t)
		wantSame(t, "claimed", event(t, t.claim(off)), numbered("event", 0))
		begun := time.Now()
		for range 3 {
			probe(t)
		}
		wantSame(t, "claimed", event(t, t.await(1, off)), numbered("event", 1))
		if took := time.Since(begun); took < 900*time.Millisecond || took > 2*time.Second+patience/10 {
			t.Errorf("the second came %v after the first", took)
		}
		wantSame(t, "claimed after that", event(t, t.claim(off)), "")
	})

	run("in claims for others, too, beside what they allow, but heeding Limit and PerAccount", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"), newWebhook("other", "other"))
		t.enqueueMany("acct", 5, 1)
		t.enqueueMany("other", 5, 1)
		probe(t)
		claim := webhooks.Claim{Limit: 9, Webhooks: []string{"other"}, Probes: 1, PerAccount: 2}
		wantSame(t, "number of tasks", t.claimCounts(claim), map[string]int{"webhook": 1, "other": 2})
		t.setActive("acct", "webhook", true)
		claim = webhooks.Claim{Limit: 9, Cap: each(0), PerAccount: 1}
		probe(t)
		time.Sleep(1100 * time.Millisecond)
		wantSame(t, "number of tasks of an account at its cap", t.claimCounts(claim), map[string]int{})
	})

	run("of an account no more than ProbeCap says, and accounts take turns", func(t *tester) {
		askMany := func() {
			t.Helper()
			for i := range 8 {
				t.must(t.store.Probe(t.Context(), "many", numbered("many", i)))
			}
		}
		ask := func() {
			t.Helper()
			for _, id := range []string{"a", "b"} {
				t.must(t.store.Probe(t.Context(), id, id))
			}
		}
		for i := range 8 {
			t.createWebhooks(newWebhook("many", numbered("many", i)))
		}
		t.createWebhooks(newWebhook("a", "a"), newWebhook("b", "b"))
		for _, id := range []string{"many", "a", "b"} {
			t.enqueueMany(id, 2, map[string]int{"many": 8, "a": 1, "b": 1}[id])
		}
		claimed := func(claim webhooks.Claim) (list []string) {
			t.Helper()
			claim.Limit, claim.Cap, claim.Lease = 9, each(0), longLease
			for _, task := range t.claim(claim) {
				list = append(list, task.Webhook.Account)
			}
			slices.Sort(list)
			return list
		}
		none := func(account string) int {
			if account == "many" {
				return 0
			}
			return 9
		}
		askMany()
		wantSame(t, "accounts of a claim of one", claimed(webhooks.Claim{Probes: 1}), []string{"many"})
		ask()
		wantSame(t, "accounts of a claim of two", claimed(webhooks.Claim{Probes: 2}), []string{"a", "b"})
		wantSame(t, "accounts with a ProbeCap of 2", claimed(webhooks.Claim{Probes: 5, ProbeCap: func(string) int { return 2 }}), []string{"many", "many"})
		time.Sleep(1100 * time.Millisecond)
		askMany()
		ask()
		wantSame(t, "accounts with a ProbeCap of 0", claimed(webhooks.Claim{Probes: 5, ProbeCap: none}), []string{"a", "b"})
		wantSame(t, "accounts without a ProbeCap", len(claimed(webhooks.Claim{Probes: 9})), 8)
	})

	run("if nothing is due, what becomes due then", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 1, 1)
		end := settlement(t.claimAll(1)[0], webhooks.Retry)
		end.RetryAfter = 50 * time.Millisecond
		t.settle(end)
		probe(t)
		wantSame(t, "claimed", event(t, t.await(1, off)), numbered("event", 0))
		t.claim(off)
		time.Sleep(1100 * time.Millisecond)
		probe(t)
		t.enqueue(newEvent("acct", "later"), 1)
		wantSame(t, "claimed", event(t, t.await(1, off)), "later")
	})

	run("ErrNotFound, and nothing of a webhook that is inactive", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		t.wantError("Probe", t.store.Probe(t.Context(), "acct", "unknown"), webhooks.ErrNotFound)
		t.wantError("Probe", t.store.Probe(t.Context(), "other", "webhook"), webhooks.ErrNotFound)
		t.setActive("acct", "webhook", false)
		probe(t)
		wantSame(t, "claimed", event(t, t.claim(off)), "")
		t.setActive("acct", "webhook", true)
		wantSame(t, "claimed once it is active", event(t, t.await(1, off)), numbered("event", 0))
		t.must(t.store.DeleteWebhook(t.Context(), "acct", "webhook", nil, notices.Notice{}))
		t.wantError("Probe", t.store.Probe(t.Context(), "acct", "webhook"), webhooks.ErrNotFound)
	})

	run("Redeliver asks for it, and its delivery comes first", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 9, 1)
		tasks := t.claim(webhooks.Claim{Limit: 3, Lease: longLease})
		delivered, retried, dead := settlement(tasks[0], webhooks.Deliver), settlement(tasks[1], webhooks.Retry), settlement(tasks[2], webhooks.GiveUp)
		retried.RetryAfter, dead.Rest = time.Hour, time.Hour
		t.settle(delivered, retried, dead)
		for _, n := range []int{0, 1, 2, 7} { // 7 is pending as it was published
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", numbered("event", n), notices.Notice{}))
			wantSame(t, "claimed", event(t, t.await(1, off)), numbered("event", n))
			time.Sleep(time.Second)
		}
		for _, n := range []int{8, 5} { // the last one first
			t.must(t.store.Redeliver(t.Context(), "acct", "webhook", numbered("event", n), notices.Notice{}))
		}
		wantSame(t, "claimed", event(t, t.await(1, off)), numbered("event", 5))
		t.updateWebhook("acct", "webhook", func(*webhooks.Webhook) {}) // ends the rest
		for _, n := range []int{8, 3, 4, 6} {
			rest := t.await(1, webhooks.Claim{Limit: 1, Lease: longLease})
			if id := rest[0].Event.ID; id != numbered("event", n) {
				t.Errorf("claimed %s of the rest, want %s", id, numbered("event", n))
			}
		}
	})

	run("Redeliver of what was recovered makes it one that was not", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 3, 1)
		for _, task := range t.claimAll(3) {
			t.settle(settlement(task, webhooks.GiveUp))
		}
		t.must(t.store.CreateRecovery(t.Context(), newRecovery("acct", "webhook", "recovery", webhooks.Dead), notices.Notice{}))
		for advanced := true; advanced; {
			var err error
			advanced, err = t.store.AdvanceRecovery(t.Context(), 9)
			t.must(err)
		}
		t.enqueue(newEvent("acct", "live"), 1)
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", numbered("event", 2), notices.Notice{}))
		var got []string
		for range 4 {
			got = append(got, t.await(1, webhooks.Claim{Limit: 1, Cap: each(9), Lease: longLease})[0].Event.ID)
		}
		wantSame(t, "claimed, in turn", got, []string{numbered("event", 2), "live", numbered("event", 0), numbered("event", 1)})
	})

	run("Redeliver asks for nothing if an attempt is under way", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		t.claim(webhooks.Claim{Limit: 1, Lease: longLease})
		t.must(t.store.Redeliver(t.Context(), "acct", "webhook", numbered("event", 0), notices.Notice{}))
		wantSame(t, "claimed", event(t, t.claim(off)), "")
	})
}
