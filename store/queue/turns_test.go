package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/webhooks"
)

// hosts is a queue with something due of each of the webhooks of an account, which are
// of a standing.
func (q *Queue) fill(account string, standing Standing, webhooks, each int) {
	for i := range webhooks {
		for range each {
			q.Add(Pending{Webhook: fmt.Sprint(account, i), Account: account, Seq: uint64(q.waiting), Due: start, Standing: standing})
		}
	}
}

// Of accounts with however many webhooks each has its turn, and of each its webhooks.
func TestAccountsTakeTurns(t *testing.T) {
	var q Queue
	q.fill("many", Untried, 100, 3)
	q.fill("few", Untried, 2, 3)
	q.fill("one", Untried, 1, 3)
	got := map[string]int{}
	for range 3 {
		claimed, _ := claimFor(&q, start, 3, 9, time.Minute)
		for _, c := range claimed {
			got[c.Webhook]++
		}
	}
	want := map[string]int{"many0": 1, "many1": 1, "many2": 1, "few0": 2, "few1": 1, "one0": 3}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claimed of each webhook, three at a time (-want +got):\n%s", diff)
	}
}

// A webhook of one standing does not wait behind those of another, however many.
func TestStandingsTakeTurns(t *testing.T) {
	for limit := 1; limit < 5; limit++ {
		var q Queue
		for i := range 100 {
			q.fill(fmt.Sprint("untried", i), Untried, 10, 1)
			q.fill(fmt.Sprint("failing", i), Failing, 10, 1)
			q.fill(fmt.Sprint("proven", i), Proven, 10, 1)
		}
		for range 4 { // warm: the runQueue is anywhere
			claimFor(&q, start, limit, 9, time.Minute)
		}
		for _, s := range []Standing{Untried, Failing, Proven} {
			// The account's turn comes after those of 100 of its standing.
			q.fill(fmt.Sprint("new", s), s, 1, 1)
		}
		seen := 0
		for n := 0; n < 3*(100+4) && seen < 3; n += limit {
			claimed, _ := claimFor(&q, start, limit, 9, time.Minute)
			for _, c := range claimed {
				if c.Webhook[:3] == "new" {
					seen++
				}
			}
		}
		if seen != 3 {
			t.Errorf("claims of %d: %d of 3 had their turn with 100 accounts before each", limit, seen)
		}
	}
}

func TestUnproven(t *testing.T) {
	var q Queue
	q.fill("u", Untried, 3, 5)
	q.fill("f", Failing, 3, 5)
	q.fill("p", Proven, 2, 5)
	claim := webhooks.Claim{Limit: 99, ProvenOnly: 95, Cap: func(_ string, proven bool) int {
		if proven {
			return 2
		}
		return 1
	}}
	got := counts(&q, start, claim)
	if n := got["p0"] + got["p1"]; n != 4 || len(got) != 6 {
		t.Errorf("claimed %v, want 2 each of p0 and p1, and one each of 4 others", got)
	}
	claim.ProvenOnly = 99
	wantCounts(t, "none of them", counts(&q, start, claim), map[string]int{})
	q.SetStanding("p0", Failing)
	q.SetStanding("u0", Proven)
	q.SetStanding("u1", Proven)
	q.SetStanding("unknown", Proven)
	got = counts(&q, start, claim)
	if n := got["u0"] + got["u1"]; n == 0 || len(got) > 2 {
		t.Errorf("claimed %v, want u0 and u1, which were proven while they waited", got)
	}
	claim.ProvenOnly, claim.Cap = 0, caps(2, map[string]int{"f0": 5, "u2": 0})
	if got = counts(&q, start, claim); got["f0"] < 4 || got["u2"] != 0 {
		t.Errorf("claimed %v, want f0 up to its cap, and none of u2", got)
	}
}

// Probe has one delivery claimed, whatever the caps say, and one a second at most.
func TestProbe(t *testing.T) {
	var q Queue
	add(&q, "a", 1, start)
	add(&q, "a", 2, start)
	add(&q, "a", 3, start)
	add(&q, "a", 4, at(3*time.Second))
	none := webhooks.Claim{Limit: 9, Cap: each(0), CapVersion: 1, Lease: time.Hour}
	claims := func(now time.Time, claim webhooks.Claim, wantWait time.Duration, list ...string) {
		t.Helper()
		claimed, wait := q.Claim(now, claim)
		want(t, "what was probed", names(claimed), list...)
		for _, c := range claimed {
			if !c.Probe {
				t.Errorf("claimed %+v, which is no probe", c)
			}
		}
		if wantWait > 0 && wait > wantWait {
			t.Errorf("wait = %v, want at most %v", wait, wantWait)
		}
	}
	probe := none
	probe.Probes = 1
	claims(start, none, 0)
	claims(start, probe, 0)
	q.Probe("unknown")
	q.Probe("a")
	claims(start, none, 0) // it stays asked for
	claims(start, probe, 0, "a1")
	claims(start, probe, 0)
	q.Probe("a")
	q.Probe("a")
	claims(at(10*time.Millisecond), probe, 990*time.Millisecond)
	claims(at(time.Second), probe, 0, "a2")
	claims(at(2*time.Second), probe, 0)
	q.MakeDue("a", 3, at(2*time.Second))
	q.Probe("a")
	probe.Webhooks = []string{"b"}
	claims(at(2*time.Second), probe, 0, "a3")
	q.Probe("a") // nothing is due: what comes next
	probe.Webhooks, probe.Limit = nil, 1
	claims(at(2*time.Second), probe, time.Second)
	q.Pause("a")
	claims(at(3*time.Second), probe, 0)
	q.Resume("a")
	claims(at(3*time.Second), probe, 0, "a4")
	q.Probe("a")
	q.Drop("a")
	claims(at(9*time.Second), probe, 0)
}

// TestProbeAgain_ProbeCameToNothing_NextNeedNotWait: a probe whose delivery turned out not to be due, such
// as one that was reported twice, is followed by another at once.
func TestProbeAgain_ProbeCameToNothing_NextNeedNotWait(t *testing.T) {
	var q Queue
	add(&q, "a", 1, start)
	add(&q, "a", 2, start)
	q.Rest("a", at(time.Minute))
	q.Probe("a")
	probe := webhooks.Claim{Limit: 9, Probes: 1, Lease: time.Hour}
	claimed, _ := q.Claim(start, probe)
	want(t, "the first probe", names(claimed), "a1")
	q.Retry(claimed[0].Token, at(time.Hour), 1, false)
	claimed, _ = q.Claim(start, probe)
	want(t, "without ProbeAgain", names(claimed))
	q.ProbeAgain("a")
	claimed, _ = q.Claim(start, probe)
	want(t, "the second probe", names(claimed), "a2")
}
