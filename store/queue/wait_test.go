package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// A webhook waits since the first of what it has was due, since its last lease ended or since
// it may be leased from again: a long backlog that is worked through is no long wait.
func TestLongestWait(t *testing.T) {
	q := &Queue{epoch: start}
	want := func(what string, now, wait time.Duration) {
		t.Helper()
		if got := q.LongestWait(at(now)); got != wait {
			t.Errorf("%s: LongestWait = %v, want %v", what, got, wait)
		}
	}
	want("nothing is there", 0, 0)
	for seq := range uint64(100) {
		q.Add(Pending{Webhook: "a", Account: "acct", Seq: seq, Due: at(time.Second), Standing: Proven})
	}
	want("it is due later", 0, 0)
	want("no claim has seen it", time.Hour, time.Hour-time.Second)
	claim := webhooks.Claim{Limit: 1, Cap: each(1), CapVersion: 1, Lease: time.Minute}
	now := time.Hour
	for range 50 {
		claimed, _ := q.Claim(at(now), claim)
		want("it holds a lease", now+30*time.Second, 0)
		now += 30 * time.Second
		claim.Finished = []uint64{claimed[0].Token}
		claim.Cap, claim.CapVersion = each(0), claim.CapVersion+1
		q.Claim(at(now), claim)
		want("it has no slot", now+time.Second, 0)
		q.Done(claimed[0].Token)
		claim.Finished, claim.Cap, claim.CapVersion = nil, each(1), claim.CapVersion+1
	}
	claim.Webhooks = []string{"other"}
	q.Claim(at(now), claim)
	claim.Webhooks = nil
	q.SetStanding("a", Failing)
	want("it fails", now+time.Hour, 0)
	q.SetStanding("a", Proven)
	q.Claim(at(now), webhooks.Claim{Limit: 1, Cap: each(1), CapVersion: 99, Lease: time.Minute, PerAccount: 1})
	q.Add(Pending{Webhook: "b", Account: "acct", Seq: 1, Due: at(0), Standing: Proven})
	want("its account has as many leases as it may", now+time.Minute, 0)
	q.Drop("a")
	want("another of the account waits", now+time.Minute, now+time.Minute)
	q.Rest("b", at(now+time.Hour))
	want("it rests", now+time.Hour-1, 0)
	want("its rest is over", now+time.Hour+time.Second, time.Second)
}

// However much there is, it looks at little of it: this takes microseconds.
func BenchmarkLongestWait(b *testing.B) {
	for _, accounts := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint("accounts=", accounts), func(b *testing.B) {
			var q Queue
			for i := range 1_000_000 {
				q.Add(Pending{Webhook: fmt.Sprint("wh_", i%10_000), Account: fmt.Sprint("acct_", i%accounts), Seq: uint64(i), Due: start, Standing: Proven})
			}
			q.Claim(start, webhooks.Claim{Limit: 400, Cap: each(1), Lease: time.Hour})
			b.ReportAllocs()
			for b.Loop() {
				if q.LongestWait(at(time.Hour)) == 0 {
					b.Fatal("nothing waits")
				}
			}
		})
	}
}
