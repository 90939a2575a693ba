package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/webhooks"
)

// counts claims and counts what each webhook got.
func counts(q *Queue, now time.Time, claim webhooks.Claim) map[string]int {
	claim.Lease = time.Minute
	counts := map[string]int{}
	claimed, _ := q.Claim(now, claim)
	for _, c := range claimed {
		counts[c.Webhook]++
	}
	return counts
}

func wantCounts(t *testing.T, what string, got, want map[string]int) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// filled is a queue in which each of the webhooks, of the accounts a1 and a2 in
// turn, has n deliveries due since start.
func filled(n int, ids ...string) *Queue {
	q := &Queue{}
	seq := uint64(0)
	for range n {
		for i, id := range ids {
			q.Add(Pending{Webhook: id, Account: fmt.Sprint("a", 1+i%2), Seq: seq, Due: start})
			seq++
		}
	}
	return q
}

func TestCapsOfWebhooks(t *testing.T) {
	q := filled(10, "up", "down", "off", "other")
	claim := webhooks.Claim{Limit: 99, Cap: caps(2, map[string]int{"up": 5, "down": 1, "off": 0, "unknown": 7})}
	wantCounts(t, "with caps", counts(q, start, claim), map[string]int{"up": 5, "down": 1, "other": 2})
	wantCounts(t, "again", counts(q, start, claim), map[string]int{})
	claim.Cap = each(2)
	wantCounts(t, "without", counts(q, start, claim), map[string]int{"down": 1, "off": 2})
}

func TestCapsOfAccounts(t *testing.T) {
	q := filled(10, "a", "b", "c") // a and c are of one account
	claim := webhooks.Claim{Limit: 99, PerAccount: 3, Lease: time.Second}
	claimed, _ := q.Claim(start, claim)
	got := map[string]int{}
	for _, c := range claimed {
		got[c.Webhook]++
	}
	if got["a"]+got["c"] != 3 || got["b"] != 3 {
		t.Fatalf("claimed %v, want 3 of a and c, 3 of b", got)
	}
	wantCounts(t, "again", counts(q, start, claim), map[string]int{})
	q.Pause("b")
	for i, end := range []func(Claimed){
		func(c Claimed) { q.Done(c.Token) },
		func(c Claimed) { q.Retry(c.Token, at(time.Hour), c.Attempt, false) },
		func(c Claimed) { q.Release(c.Token) },
	} {
		for j, c := range claimed {
			if c.Webhook != "b" {
				end(c)
				claimed = append(claimed[:j], claimed[j+1:]...)
				break
			}
		}
		next, _ := q.Claim(start, claim)
		if len(next) != 1 {
			t.Errorf("claimed %v after end %d, want one", next, i)
		}
	}
	if next, _ := q.Claim(at(time.Second), claim); len(next) != 3 {
		t.Errorf("claimed %v after all leases ran out, want 3", next)
	}
	q.Drop("a")
	next, _ := q.Claim(at(time.Second), claim)
	for _, c := range next {
		if c.Webhook != "c" {
			t.Errorf("claimed %v, want only c", c)
		}
	}
	if q.accounts.all["a1"].leased != 3 {
		t.Errorf("the account has %d leases after one of its webhooks was dropped, want the 3 of the other", q.accounts.all["a1"].leased)
	}
	claim.PerAccount = 0
	if next, _ := q.Claim(at(time.Second), claim); len(next) < 5 {
		t.Errorf("claimed %v without a cap, want all that is pending for c", next)
	}
}

func TestLanded(t *testing.T) {
	q := filled(20, "a", "b", "c")
	claim := webhooks.Claim{Limit: 99, Cap: each(3), PerAccount: 4, Lease: time.Second}
	first, _ := q.Claim(start, claim)
	if len(first) != 7 { // 4 of a and c, 3 of b
		t.Fatalf("claimed %v, want 7", first)
	}
	tokens := map[string][]uint64{}
	for _, c := range first {
		tokens[c.Webhook] = append(tokens[c.Webhook], c.Token)
	}
	claim.Finished = []uint64{tokens["b"][0], tokens["b"][0], tokens["a"][0], 0, 7}
	next, _ := q.Claim(start, claim)
	if len(next) != 2 {
		t.Fatalf("claimed %v with one of b and one of a finished, want one of b and one of their account", next)
	}
	if got, _ := q.Claim(start, claim); len(got) != 0 {
		t.Errorf("claimed %v with the same finished again", got)
	}
	if b := q.Backlog(start, "b"); b.Pending != 20 {
		t.Errorf("%d pending of b, want all 20", b.Pending)
	}
	if !q.Leased("b", first[1].Seq) {
		t.Error("what has finished is leased no more")
	}

	// However it ends, it is counted off once.
	claim.Finished = nil
	q.Release(tokens["b"][0])
	q.Done(tokens["a"][0])
	if got, _ := q.Claim(start, claim); len(got) != 0 {
		t.Errorf("claimed %v after what had finished was settled", got)
	}
	claim.Finished = []uint64{tokens["b"][1]}
	if got, _ := q.Claim(at(time.Second), claim); len(got) != 7 {
		t.Errorf("claimed %v after all leases ran out, want 7", got)
	}
	q.Drop("b")
	if q.accounts.all["a2"] != nil {
		t.Error("the account of what was dropped is remembered")
	}
}

func TestFullOnesKeepTheirTurn(t *testing.T) {
	q := filled(50, "a", "b", "c", "d", "e", "f")
	turns := map[string]int{}
	for n := range 90 {
		claimed, _ := q.Claim(start, webhooks.Claim{Limit: 1 + n%4, Cap: each(1), PerAccount: 1, Lease: time.Minute})
		for _, c := range claimed {
			turns[c.Webhook]++
			q.Done(c.Token)
		}
	}
	for id, n := range turns {
		if n < 15 {
			t.Errorf("%s got %d turns: %v", id, n, turns)
		}
	}
}

// TestClaimCappedTakesTurns mixes claims for a few webhooks with claims for the
// rest.
func TestClaimCappedTakesTurns(t *testing.T) {
	q := filled(100, "a", "b", "c", "d", "e", "f")
	capped := map[string]int{"a": 1, "b": 1, "c": 1, "d": 1}
	none := map[string]int{"a": 0, "b": 0, "c": 0, "d": 0}
	turns := map[string]int{}
	for n := range 100 {
		claims := []webhooks.Claim{
			{Limit: 1 + n%3, Cap: caps(0, capped), Webhooks: []string{"a", "b", "c", "d"}},
			{Limit: 1 + n%2, Cap: caps(1, none)},
		}
		for _, claim := range claims {
			claim.Lease = time.Minute
			claimed, _ := q.Claim(start, claim)
			if len(claimed) == 0 {
				t.Fatalf("claimed nothing at %d with %+v", n, claim)
			}
			for _, c := range claimed {
				if _, special := capped[c.Webhook]; special == (claim.Webhooks == nil) {
					t.Fatalf("claimed %v with %+v", c, claim)
				}
				turns[c.Webhook]++
				q.Done(c.Token)
			}
			for _, group := range [][]string{{"a", "b", "c", "d"}, {"e", "f"}} {
				for _, x := range group {
					for _, y := range group {
						if turns[x] > turns[y]+1 {
							t.Fatalf("%s has had %d turns, %s %d", x, turns[x], y, turns[y])
						}
					}
				}
			}
		}
	}
}

func TestClaimCapped(t *testing.T) {
	q := filled(5, "a", "b", "c")
	recoverTo(q, "a", 100, at(-time.Hour))
	add(q, "a", 101, at(10*time.Second))
	add(q, "c", 102, at(5*time.Second))
	q.Pause("b")
	claim := webhooks.Claim{Limit: 99, Lease: time.Minute}
	claim.Webhooks = []string{"unknown"}
	wantCounts(t, "of none that is there", counts(q, start, claim), map[string]int{})
	claim.Webhooks, claim.Cap = []string{"a", "b", "unknown"}, each(4)
	claimed, wait := q.Claim(start, claim)
	want(t, "oldest first", names(claimed), "a0", "a3", "a6", "a9")
	if wait <= 0 || wait > time.Minute {
		t.Errorf("wait = %v with a at its cap, want no longer than until a lease ends", wait)
	}
	claim.Cap = caps(4, map[string]int{"a": 9})
	claimed, wait = q.Claim(start, claim)
	want(t, "live ones before recovered ones", names(claimed), "a12", "a100")
	if wait <= 0 || wait > 10*time.Second {
		t.Errorf("wait = %v, want no longer than until a has another due", wait)
	}
	claimed, _ = q.Claim(at(10*time.Second), claim)
	want(t, "later", names(claimed), "a101")

	// What is in line or among the timers stays so.
	claim = webhooks.Claim{Limit: 99, Lease: time.Minute}
	wantCounts(t, "the rest", counts(q, at(10*time.Second), claim), map[string]int{"c": 6})
	q.Resume("b")
	wantCounts(t, "after Resume", counts(q, at(10*time.Second), claim), map[string]int{"b": 5})
	for _, c := range claimed {
		q.Retry(c.Token, at(20*time.Second), c.Attempt, false)
	}
	if got, wait := q.Claim(at(10*time.Second), claim); len(got) != 0 || wait != 10*time.Second {
		t.Errorf("claimed %v, wait %v, want nothing for 10s", got, wait)
	}
}
