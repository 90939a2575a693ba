package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

func TestRest(t *testing.T) {
	var q Queue
	for seq := range uint64(3) {
		add(&q, "a", seq, start)
	}
	all := webhooks.Claim{Limit: 9, Lease: time.Hour}
	claims := func(now time.Time, claim webhooks.Claim, wantWait time.Duration, list ...string) {
		t.Helper()
		claimed, wait := q.Claim(now, claim)
		want(t, "claimed", names(claimed), list...)
		if wait > wantWait {
			t.Errorf("wait = %v, want at most %v", wait, wantWait)
		}
	}
	q.Rest("a", at(time.Minute))
	q.Rest("a", at(time.Second)) // the last to end counts
	claims(start, all, time.Minute)
	claims(at(time.Second), webhooks.Claim{Limit: 9, Webhooks: []string{"a"}, Lease: time.Hour}, 59*time.Second)

	// A probe does not mind.
	probe := webhooks.Claim{Limit: 9, Probes: 1, Lease: time.Hour}
	for seq := range 3 {
		q.Probe("a")
		claims(at(time.Duration(seq)*2*time.Second), probe, time.Hour, fmt.Sprint("a", seq))
	}

	// It outlives what is pending.
	add(&q, "a", 3, start)
	claims(at(59*time.Second), all, time.Second)
	q.EndRest("a")
	q.EndRest("unknown")
	claims(at(59*time.Second), all, time.Hour, "a3")
	q.Rest("a", at(time.Hour))
	q.Drop("a")
	add(&q, "a", 4, start)
	claims(at(time.Minute), all, time.Hour, "a4")
}

// Rests that are over do not pile up.
func TestRestsEnd(t *testing.T) {
	var q Queue
	for i := range 10_000 {
		q.Rest(fmt.Sprint("wh_", i), time.Now().Add(-time.Second))
	}
	if n := len(q.rests.all); n > 2*minRests {
		t.Errorf("%d rests are remembered that are over", n)
	}
}

// A probe does not wait for the end of a Rest, also if it has to wait until something is
// due.
func TestProbeDuringRest(t *testing.T) {
	var q Queue
	add(&q, "a", 0, at(2*time.Second))
	q.Rest("a", at(time.Minute))
	q.Probe("a")
	probe := webhooks.Claim{Limit: 9, Probes: 1, Lease: time.Hour}
	claimed, wait := q.Claim(start, probe)
	want(t, "claimed", names(claimed))
	if wait > 2*time.Second {
		t.Fatalf("wait = %v, but something is due in 2s", wait)
	}
	claimed, _ = q.Claim(at(2*time.Second), probe)
	want(t, "claimed", names(claimed), "a0")
}
