package storetest

import (
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// claimCounts claims for long and counts the tasks of each webhook.
func (t *tester) claimCounts(claim webhooks.Claim) map[string]int {
	t.Helper()
	claim.Lease = longLease
	counts := map[string]int{}
	for _, task := range t.claim(claim) {
		counts[task.Webhook.ID]++
	}
	return counts
}

// each is a cap for all webhooks.
func each(most int) func(string, bool) int { return caps(most, nil) }

// caps are those of some webhooks, and of the others.
func caps(others int, of map[string]int) func(string, bool) int {
	return func(webhook string, _ bool) int {
		if most, ok := of[webhook]; ok {
			return most
		}
		return others
	}
}

// only returns a claim for the webhooks that there are caps of.
func only(claim webhooks.Claim, of map[string]int) webhooks.Claim {
	claim.Webhooks, claim.Cap = slices.Sorted(maps.Keys(of)), caps(0, of)
	return claim
}

// accountCaps tests what ClaimDeliveries says of Claim.PerAccount.
func accountCaps(run runner) {
	run = claiming(run)
	const many = 100

	run("never more than PerAccount leased, earlier claims included", func(t *tester) {
		t.createWebhooks(newWebhook("a", "a1"), newWebhook("a", "a2"), newWebhook("a", "a3"), newWebhook("b", "b"))
		t.enqueueMany("a", 4, 3)
		t.enqueueMany("b", 2, 1)
		claim := func(perAccount int) (ofA, ofB int) {
			counts := t.claimCounts(webhooks.Claim{Limit: many, PerAccount: perAccount})
			return counts["a1"] + counts["a2"] + counts["a3"], counts["b"]
		}
		for _, step := range []struct{ perAccount, ofA, ofB int }{{4, 4, 2}, {4, 0, 0}, {1, 0, 0}, {6, 2, 0}, {0, 6, 0}, {0, 0, 0}} {
			ofA, ofB := claim(step.perAccount)
			wantSame(t, "number of tasks of both accounts", []int{ofA, ofB}, []int{step.ofA, step.ofB})
		}
	})

	run("0 is any number", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.enqueueMany("acct", 50, 2)
		wantSame(t, "number of tasks", t.claimCounts(webhooks.Claim{Limit: many}), map[string]int{"a": 50, "b": 50})
	})

	run("Cap holds too", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("acct", "c"))
		t.enqueueMany("acct", 5, 3)
		counts := t.claimCounts(webhooks.Claim{Limit: many, Cap: each(2), PerAccount: 5})
		wantSame(t, "number of tasks", counts["a"]+counts["b"]+counts["c"], 5)
		wantSame(t, "the most of a webhook", max(counts["a"], counts["b"], counts["c"]), 2)
	})

	run("settlements make room, whatever the outcome", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.enqueueMany("acct", 10, 2)
		claim := webhooks.Claim{Limit: many, PerAccount: 4, Lease: longLease}
		for range 3 {
			tasks := t.claim(claim)
			wantSame(t, "number of tasks", len(tasks), 4)
			for i, task := range tasks {
				end := settlement(task, webhooks.Outcome(i))
				if end.Outcome == webhooks.Retry {
					end.RetryAfter = time.Hour
				}
				t.settle(end)
			}
		}
	})

	run("leases that run out make room", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.enqueueMany("acct", 10, 2)
		short := webhooks.Claim{Limit: many, PerAccount: 3, Lease: shortLease}
		for range 3 {
			t.await(3, short)
		}
		short.Lease = longLease
		t.await(3, short)
		wantSame(t, "number of tasks", len(t.claim(short)), 0)
	})

	run("leases of an inactive webhook count", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.enqueueMany("acct", 10, 2)
		t.setActive("acct", "b", false)
		claim := webhooks.Claim{Limit: many, PerAccount: 3}
		wantSame(t, "number of tasks", t.claimCounts(claim), map[string]int{"a": 3})
		t.setActive("acct", "a", false)
		t.setActive("acct", "b", true)
		wantSame(t, "number of tasks", t.claimCounts(claim), map[string]int{})
		claim.PerAccount = 4
		wantSame(t, "number of tasks", t.claimCounts(claim), map[string]int{"b": 1})
	})

	run("an account at its cap does not keep the others waiting", func(t *tester) {
		t.createWebhooks(newWebhook("busy", "busy1"), newWebhook("busy", "busy2"), newWebhook("quiet", "quiet"))
		t.enqueueMany("busy", 50, 2)
		wantSame(t, "leased of busy", len(t.claim(webhooks.Claim{Limit: many, PerAccount: 2, Lease: longLease})), 2)
		t.enqueueMany("quiet", 5, 1)
		for range 5 {
			tasks := t.claim(webhooks.Claim{Limit: 1, PerAccount: 2, Lease: longLease})
			if len(tasks) != 1 || tasks[0].Webhook.ID != "quiet" {
				t.Fatalf("claimed %d deliveries, want one of quiet", len(tasks))
			}
			t.settle(settlement(tasks[0], webhooks.Deliver))
		}
	})

	run("the webhooks of an account at its cap all get their turns", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"), newWebhook("acct", "c"), newWebhook("other", "d"))
		t.enqueueMany("acct", 60, 3)
		t.enqueueMany("other", 60, 1)
		turns := map[string]int{}
		for n := range 60 {
			for _, task := range t.claim(webhooks.Claim{Limit: 1 + n%3, Cap: each(1), PerAccount: 1, Lease: longLease}) {
				turns[task.Webhook.ID]++
				t.settle(settlement(task, webhooks.Deliver))
			}
		}
		if least := min(turns["a"], turns["b"], turns["c"]); least < 5 {
			t.Errorf("in 60 claims they were claimed %v times, though all always had some due", turns)
		}
	})
}

// webhookCaps tests what ClaimDeliveries says of Claim.Cap and Claim.Webhooks.
func webhookCaps(run runner) {
	const many = 100

	// four makes the webhooks a, b, c and d, each of which is owed 10 deliveries.
	four := func(t *tester) {
		t.Helper()
		for _, id := range []string{"a", "b", "c", "d"} {
			t.createWebhooks(newWebhook(id, id))
			t.enqueueMany(id, 10, 1)
		}
	}

	run("each webhook has its own", func(t *tester) {
		four(t)
		claim := webhooks.Claim{Limit: many, Cap: caps(2, map[string]int{"a": 5, "b": 1, "c": 0})}
		wantSame(t, "number of tasks", t.claimCounts(claim), map[string]int{"a": 5, "b": 1, "d": 2})
		wantSame(t, "number of tasks", t.claimCounts(claim), map[string]int{})
		claim.Cap = caps(2, map[string]int{"a": 4, "b": 3, "d": 3})
		wantSame(t, "number of tasks with other caps", t.claimCounts(claim), map[string]int{"b": 2, "c": 2, "d": 1})
		claim.Cap = each(6)
		wantSame(t, "number of tasks with one for all", t.claimCounts(claim), map[string]int{"a": 1, "b": 3, "c": 4, "d": 3})
		claim.Cap = nil
		wantSame(t, "number of tasks without caps", t.claimCounts(claim), map[string]int{"a": 4, "b": 4, "c": 4, "d": 4})
	})

	run("ids without a webhook are ignored", func(t *tester) {
		four(t)
		t.must(t.store.DeleteWebhook(t.Context(), "a", "a", nil, notices.Notice{}))
		of := map[string]int{"a": 5, "unknown": 5, "A": 0, "b": 3}
		claim := webhooks.Claim{Limit: many, Cap: caps(1, of)}
		wantSame(t, "number of tasks", t.claimCounts(claim), map[string]int{"b": 3, "c": 1, "d": 1})
		of["b"] = 4
		wantSame(t, "number of tasks", t.claimCounts(only(claim, of)), map[string]int{"b": 1})
	})

	run("what had a cap of 0 is claimed again once CapVersion is another, or 0", func(t *tester) {
		four(t)
		claim := func(version uint64, of map[string]int) map[string]int {
			t.Helper()
			return t.claimCounts(webhooks.Claim{Limit: many, Cap: caps(1, of), CapVersion: version})
		}
		none := map[string]int{"a": 0, "b": 0, "c": 0}
		wantSame(t, "number of tasks", claim(7, none), map[string]int{"d": 1})
		wantSame(t, "number of tasks with the same version", claim(7, none), map[string]int{})
		wantSame(t, "number of tasks with another", claim(8, map[string]int{"a": 0, "c": 0}), map[string]int{"b": 1})
		wantSame(t, "number of tasks of one named", t.claimCounts(only(webhooks.Claim{Limit: many}, map[string]int{"a": 1})), map[string]int{"a": 1})
		t.setActive("c", "c", false)
		t.enqueueMany("a", 1, 1)
		wantSame(t, "number of tasks with a third one", claim(9, map[string]int{"a": 3, "c": 0}), map[string]int{"a": 2})
		t.setActive("c", "c", true)
		wantSame(t, "number of tasks with one that was before", claim(7, map[string]int{"a": 0}), map[string]int{"c": 1})
		wantSame(t, "number of tasks with a at 0", claim(7, map[string]int{"a": 0, "c": 0}), map[string]int{})
		t.must(t.store.DeleteWebhook(t.Context(), "a", "a", nil, notices.Notice{}))
		wantSame(t, "number of tasks without a version", claim(0, map[string]int{"c": 2, "d": 2}), map[string]int{"c": 1, "d": 1})
	})

	run("Cap is called during the call only, and one call at a time", func(t *tester) {
		four(t)
		var mu sync.Mutex
		over := false
		claim := webhooks.Claim{Limit: many, Cap: func(string, bool) int {
			if !mu.TryLock() {
				t.Error("two calls of Cap at once")
				return 0
			}
			defer mu.Unlock()
			if over {
				t.Error("Cap was called after the claim")
			}
			return 1
		}}
		wantSame(t, "number of tasks", t.claimCounts(claim), map[string]int{"a": 1, "b": 1, "c": 1, "d": 1})
		mu.Lock()
		over = true
		mu.Unlock()
		t.setActive("a", "a", true)
		t.enqueueMany("a", 1, 1)
		wantSame(t, "number of tasks", t.claimCounts(webhooks.Claim{Limit: many, Cap: each(2)}), map[string]int{"a": 1, "b": 1, "c": 1, "d": 1})
	})

	run("PerAccount and Limit hold for webhooks that are named, too", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "a"), newWebhook("acct", "b"))
		t.enqueueMany("acct", 20, 2)
		for i, named := range [][]string{{"a", "b"}, nil} {
			claim := webhooks.Claim{Limit: many, PerAccount: 3 + 5*i, Webhooks: named}
			counts := t.claimCounts(claim)
			wantSame(t, "number of tasks with PerAccount", counts["a"]+counts["b"], 3)
			claim.Limit, claim.PerAccount = 2, 0
			counts = t.claimCounts(claim)
			wantSame(t, "number of tasks with Limit", counts["a"]+counts["b"], 2)
		}
	})

	run("Webhooks are claimed for, and no others", func(t *tester) {
		four(t)
		claim := only(webhooks.Claim{Limit: many}, map[string]int{"a": 3, "b": 1, "c": 0})
		wantSame(t, "number of tasks", t.claimCounts(claim), map[string]int{"a": 3, "b": 1})
		wantSame(t, "number of tasks again", t.claimCounts(claim), map[string]int{})
		t.setActive("a", "a", false)
		claim = webhooks.Claim{Limit: many, Webhooks: []string{"a", "b"}}
		wantSame(t, "number of tasks with a inactive", t.claimCounts(claim), map[string]int{"b": 9})
		wantSame(t, "number of tasks of the rest", t.claimCounts(webhooks.Claim{Limit: many}), map[string]int{"c": 10, "d": 10})
	})

	run("of one named webhook the longest due comes first", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		for i := range 6 {
			t.enqueue(newEvent("acct", numbered("event", i)), 1)
			time.Sleep(2 * time.Millisecond) // due in different milliseconds
		}
		for i := range 6 {
			tasks := t.claim(webhooks.Claim{Limit: 1, Lease: longLease, Webhooks: []string{"webhook"}})
			wantSame(t, "number of tasks", len(tasks), 1)
			wantSame(t, "Task.Event.ID", tasks[0].Event.ID, numbered("event", i))
		}
	})

	run("leases of one named that run out free their deliveries", func(t *tester) {
		t.createWebhooks(newWebhook("acct", "webhook"))
		t.enqueueMany("acct", 2, 1)
		claim := only(webhooks.Claim{Limit: 9, Lease: shortLease}, map[string]int{"webhook": 2})
		first := t.await(2, claim)
		claim.Lease = longLease
		second := t.await(2, claim)
		t.wantStale(settlement(first[0], webhooks.Deliver))
		t.settle(settlement(second[0], webhooks.Deliver), settlement(second[1], webhooks.Deliver))
	})

	run("those named take turns, over several claims too", func(t *tester) {
		ids := []string{"a", "b", "c", "d", "e"}
		limits := map[string]int{}
		for i, id := range ids {
			t.createWebhooks(newWebhook(id, id))
			t.enqueueMany(id, 25+i*20, 1)
			limits[id] = 1
		}
		turns := map[string]int{}
		for n := range 60 {
			for _, task := range t.claim(only(webhooks.Claim{Limit: 1 + n%3, Lease: longLease}, limits)) {
				turns[task.Webhook.ID]++
				t.settle(settlement(task, webhooks.Deliver))
			}
			for _, a := range ids {
				for _, b := range ids {
					if turns[a] > turns[b]+1 {
						t.Fatalf("%s was claimed %d times, %s %d times, though both always had some due", a, turns[a], b, turns[b])
					}
				}
			}
		}
	})

	run("many due of one named leave room for the others in one claim", func(t *tester) {
		t.createWebhooks(newWebhook("busy", "busy"), newWebhook("quiet", "quiet"))
		t.enqueueMany("busy", 50, 1)
		t.enqueue(newEvent("quiet", "event"), 1)
		counts := t.claimCounts(webhooks.Claim{Limit: 10, Webhooks: []string{"busy", "quiet"}})
		wantSame(t, "number of tasks", counts, map[string]int{"busy": 9, "quiet": 1})
	})

	run("however they are claimed, all are claimed once", func(t *tester) {
		ids := []string{"a", "b", "c", "d"}
		for _, id := range ids {
			t.createWebhooks(newWebhook(id, id))
			t.enqueueMany(id, 20, 1)
		}
		rnd := rand.New(rand.NewPCG(1, 2))
		tries := map[string]int{} // of each delivery
		var left []webhooks.Task
		done := 0
		for progress := time.Now(); done < 80; {
			claim := webhooks.Claim{Limit: 1 + rnd.IntN(9), PerAccount: rnd.IntN(4), Lease: longLease}
			of := map[string]int{}
			for _, id := range ids {
				if rnd.IntN(2) == 0 {
					of[id] = rnd.IntN(4)
				}
			}
			claim.Cap = caps(rnd.IntN(4), of)
			if rnd.IntN(4) == 0 {
				claim = only(claim, of)
			}
			left = append(left, t.claim(claim)...)
			rnd.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
			for ; len(left) > 0 && rnd.IntN(3) > 0; left = left[1:] {
				task := left[0]
				name := task.Webhook.ID + task.Event.ID
				tries[name]++
				wantSame(t, "Task.Attempt", task.Attempt, tries[name])
				end := settlement(task, webhooks.Retry)
				if rnd.IntN(3) == 0 {
					end.Outcome = webhooks.Deliver
					done++
				}
				t.settle(end)
				progress = time.Now()
			}
			if time.Since(progress) > patience {
				t.Fatalf("after %d of 80 deliveries nothing was claimed within %v", done, patience)
			}
		}
		wantSame(t, "number of deliveries", len(tries), 80)
		t.claimAll(0)
	})
}
