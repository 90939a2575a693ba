package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/webhooks"
)

var start = time.UnixMilli(1_800_000_000_000)

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

func at(d time.Duration) time.Time { return start.Add(d) }

// claimFor claims without caps of single webhooks or accounts.
func claimFor(q *Queue, now time.Time, limit, perLane int, lease time.Duration) ([]Claimed, time.Duration) {
	return q.Claim(now, webhooks.Claim{Limit: limit, Cap: each(perLane), Lease: lease})
}

// add adds a delivery that no attempt was made at.
func add(q *Queue, webhook string, seq uint64, due time.Time) {
	q.Add(Pending{Webhook: webhook, Account: "acct", Seq: seq, Due: due})
}

func claim(q *Queue, now time.Time, limit, perLane int) ([]string, time.Duration) {
	claimed, wait := claimFor(q, now, limit, perLane, time.Minute)
	var got []string
	for _, c := range claimed {
		got = append(got, fmt.Sprint(c.Webhook, c.Seq))
	}
	return got, wait
}

func TestLanesTakeTurns(t *testing.T) {
	var q Queue
	for seq := range uint64(1000) {
		add(&q, "a", seq, start)
	}
	add(&q, "b", 1000, start)
	add(&q, "c", 1001, start)
	add(&q, "c", 1002, start)

	var got []string
	for range 3 { // turns go on over claims
		some, wait := claim(&q, start, 2, 100)
		if wait != 0 {
			t.Errorf("wait = %v with more to claim", wait)
		}
		got = append(got, some...)
	}
	want := []string{"a0", "b1000", "c1001", "a1", "c1002", "a2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A claimer that knows nothing of a webhook is not kept from it by one that gave it no
// slots.
func TestSuspendedByAnother(t *testing.T) {
	var q Queue
	add(&q, "a", 1, start)
	claim := webhooks.Claim{Limit: 9, Lease: time.Minute, CapVersion: 1}
	down := claim
	down.Cap, down.CapVersion = each(0), 2
	if claimed, _ := q.Claim(start, down); len(claimed) != 0 {
		t.Errorf("claimed %v without a slot", claimed)
	}
	if claimed, _ := q.Claim(start, claim); len(claimed) != 1 {
		t.Errorf("claimed %v, want what another gave no slots", claimed)
	}
}

// However many webhooks have no slots, a claim whose caps are others than before asks about
// a bounded number, and claims that follow at once about the others.
func TestManyAreAskedInParts(t *testing.T) {
	const many, most = 10_000, 1000
	var q Queue
	for i := range many {
		add(&q, fmt.Sprint("w", i), uint64(i), start)
	}
	asked, cap := 0, 0
	claim := webhooks.Claim{Limit: 2 * many, Lease: time.Minute, CapVersion: 1, Cap: func(string, bool) int { asked++; return cap }}
	q.Claim(start, claim)
	cap, claim.CapVersion = 1, 2
	var got []string
	for claims := 1; ; claims++ {
		asked = 0
		claimed, wait := q.Claim(start, claim)
		if got = append(got, names(claimed)...); asked > 4*most {
			t.Errorf("claim %d asked %d times", claims, asked)
		}
		if len(got) == many {
			break
		}
		if wait != 0 || claims == 60 {
			t.Fatalf("%d of %d claimed in %d claims; wait %v", len(got), many, claims, wait)
		}
	}
	slices.Sort(got)
	if len(slices.Compact(got)) != many {
		t.Error("some were claimed twice")
	}
	cap = 0
	for i := range many {
		add(&q, fmt.Sprint("w", i), uint64(many+i), start)
	}
	q.Claim(start, claim)
	claim.CapVersion = 3
	for range 60 { // all are asked, and no more
		asked = 0
		if _, wait := q.Claim(start, claim); wait > 0 {
			break
		}
		if asked > most {
			t.Errorf("asked %d times", asked)
		}
	}
	asked = 0
	if _, wait := q.Claim(start, claim); wait == 0 || asked != 0 {
		t.Errorf("asked %d times once all were, wait %v", asked, wait)
	}
}

func TestCapHoldsOverClaims(t *testing.T) {
	var q Queue
	for seq := range uint64(10) {
		add(&q, "a", seq, start)
	}
	first, _ := claimFor(&q, start, 100, 3, time.Minute)
	if len(first) != 3 {
		t.Fatalf("claimed %d, want the cap of 3", len(first))
	}
	if again, wait := claim(&q, start, 100, 3); len(again) != 0 || wait != time.Minute {
		t.Fatalf("claimed %v, wait %v; want nothing until the leases end in 1m", again, wait)
	}
	q.Done(first[0].Token)
	if again, _ := claim(&q, start, 100, 3); len(again) != 1 {
		t.Fatalf("claimed %v after one was done, want 1", again)
	}
	if again, _ := claim(&q, start, 100, 5); len(again) != 2 {
		t.Fatalf("claimed %v with a higher cap, want 2", again)
	}
}

func TestWaitAndRetry(t *testing.T) {
	var q Queue
	if _, wait := claim(&q, start, 1, 1); wait != time.Hour {
		t.Errorf("wait of an empty queue = %v, want the most", wait)
	}
	add(&q, "a", 1, at(5*time.Second))
	add(&q, "a", 2, at(2*time.Second))
	add(&q, "b", 3, at(3*time.Second))
	if got, wait := claim(&q, start, 9, 9); len(got) != 0 || wait != 2*time.Second {
		t.Errorf("claimed %v, wait %v; want nothing for 2s", got, wait)
	}
	claimed, wait := claimFor(&q, at(2*time.Second), 9, 9, time.Minute)
	if len(claimed) != 1 || claimed[0].Seq != 2 || wait != time.Second {
		t.Fatalf("claimed %v, wait %v; want seq 2 and 1s", claimed, wait)
	}
	q.Retry(claimed[0].Token, at(10*time.Second), 1, false)
	if got, wait := claim(&q, at(6*time.Second), 9, 9); !slices.Equal(got, []string{"b3", "a1"}) || wait != 4*time.Second {
		t.Errorf("claimed %v, wait %v; want b3, a1 and 4s", got, wait)
	}
	claimed, _ = claimFor(&q, at(10*time.Second), 9, 9, time.Minute)
	if len(claimed) != 1 || claimed[0].Attempt != 2 {
		t.Errorf("claimed %v, want the second attempt", claimed)
	}
}

func TestLeases(t *testing.T) {
	var q Queue
	add(&q, "a", 1, start)
	c, _ := claimFor(&q, start, 1, 1, time.Second)
	if got, _ := claim(&q, at(999*time.Millisecond), 1, 1); len(got) != 0 {
		t.Errorf("claimed %v while leased", got)
	}
	// Ran out: the next claim has another token and another number.
	c2, _ := claimFor(&q, at(time.Second), 1, 1, time.Second)
	if len(c2) != 1 || c2[0].Token == c[0].Token || c2[0].Attempt != 2 {
		t.Fatalf("claimed %v after %v ran out", c2, c)
	}
	if _, _, ok := q.Hold(c[0].Token); ok {
		t.Error("held by a token that ran out")
	}
	// Held: does not run out, and cannot be held twice.
	if w, seq, ok := q.Hold(c2[0].Token); !ok || w != "a" || seq != 1 {
		t.Errorf("Hold = %q, %d, %v", w, seq, ok)
	}
	if _, _, ok := q.Hold(c2[0].Token); ok {
		t.Error("held twice")
	}
	if got, _ := claim(&q, at(time.Hour), 1, 1); len(got) != 0 {
		t.Errorf("claimed %v while held", got)
	}
	q.Unhold(c2[0].Token)
	c3, _ := claimFor(&q, at(time.Hour), 1, 1, time.Second)
	if len(c3) != 1 {
		t.Fatal("not claimable after Unhold")
	}
	q.Release(c3[0].Token)
	c4, _ := claimFor(&q, at(time.Hour), 1, 1, time.Second)
	if len(c4) != 1 || c4[0].Attempt != c3[0].Attempt {
		t.Fatalf("claimed %v after Release of %v, want the same attempt", c4, c3)
	}
	q.Done(c4[0].Token)
	if got, wait := claim(&q, at(2*time.Hour), 1, 1); len(got) != 0 || wait != time.Hour {
		t.Errorf("claimed %v, wait %v after Done", got, wait)
	}
}

func TestPauseResumeDrop(t *testing.T) {
	var q Queue
	add(&q, "a", 1, start)
	add(&q, "a", 2, start)
	add(&q, "b", 3, start)
	c, _ := claimFor(&q, start, 1, 9, time.Minute)
	q.Pause("a")
	if got, _ := claim(&q, start, 9, 9); !slices.Equal(got, []string{"b3"}) {
		t.Errorf("claimed %v with a paused", got)
	}
	q.Retry(c[0].Token, start, 1, false) // still allowed, and waits
	if got, _ := claim(&q, start, 9, 9); len(got) != 0 {
		t.Errorf("claimed %v with a paused", got)
	}
	q.Resume("a")
	c, _ = claimFor(&q, start, 1, 9, time.Minute)
	if len(c) != 1 || c[0].Webhook != "a" {
		t.Fatalf("claimed %v after Resume", c)
	}
	if dropped := sorted(q.Drop("a")); !slices.Equal(dropped, []uint64{1, 2}) {
		t.Errorf("dropped %v", dropped)
	}
	if _, _, ok := q.Hold(c[0].Token); ok {
		t.Error("held a lease of a dropped webhook")
	}
	q.Done(c[0].Token)
	if got, _ := claim(&q, at(time.Hour), 9, 9); slices.Contains(got, "a2") || pendingOf(&q, "a") != nil {
		t.Errorf("claimed %v after Drop", got)
	}
}

func BenchmarkAddClaimDone(b *testing.B) {
	for _, lanes := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprint("lanes=", lanes), func(b *testing.B) {
			var q Queue
			names := make([]string, lanes)
			for i := range names {
				names[i] = fmt.Sprint("wh_", i)
			}
			seq := uint64(0)
			for b.Loop() {
				add(&q, names[seq%uint64(lanes)], seq, start)
				seq++
				c, _ := claimFor(&q, start, 1, 8, time.Minute)
				q.Done(c[0].Token)
			}
		})
	}
}

// What a claim costs beside webhooks that have much due and no slots, and if caps of others
// have changed.
func BenchmarkClaimBesideCapped(b *testing.B) {
	for i := range 8 {
		capped, changed := []int{0, 100, 1000, 10_000}[i/2], i%2 == 1
		b.Run(fmt.Sprintf("capped=%d/changed=%t", capped, changed), func(b *testing.B) {
			var q Queue
			of := map[string]int{}
			claim := webhooks.Claim{Limit: 1, Cap: caps(8, of), CapVersion: 1, Lease: time.Minute}
			for i := range capped {
				id := fmt.Sprint("down_", i)
				add(&q, id, uint64(i), start)
				of[id] = 0
			}
			seq := uint64(capped)
			for b.Loop() {
				add(&q, "fit", seq, start)
				seq++
				if changed {
					claim.CapVersion++
				}
				claimed, _ := q.Claim(start, claim)
				q.Done(claimed[0].Token)
			}
		})
	}
}
