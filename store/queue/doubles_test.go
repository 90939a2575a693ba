package queue

import (
	"testing"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// A delivery that was added twice is leased once at a time.
func TestQueue_AddedTwice_LeasedOnceAtATime(t *testing.T) {
	var q Queue
	for range 3 {
		add(&q, "a", 1, start)
	}
	add(&q, "a", 2, start)
	claimed, _ := claimFor(&q, start, 9, 9, time.Minute)
	want(t, "of three that are the same", names(claimed), "a1", "a2")
	add(&q, "a", 1, at(-time.Second))
	got, _ := claim(&q, start, 9, 9)
	want(t, "while it is leased", got)
	got = names(q.claimAs(webhooks.Claim{Limit: 9, Webhooks: []string{"a"}}))
	want(t, "while it is leased, by name", got)
	q.Probe("a")
	add(&q, "a", 1, start)
	add(&q, "a", 3, at(time.Second))
	claimed, _ = q.Claim(at(time.Second), webhooks.Claim{Limit: 9, Probes: 9, Lease: time.Minute})
	want(t, "by a probe, while another is leased", names(claimed), "a3")
	if n := q.Backlog(start, "").Pending; n != 3 {
		t.Errorf("%d are pending once each has a lease, want 3", n)
	}
}

// claimAs claims at the start.
func (q *Queue) claimAs(claim webhooks.Claim) []Claimed {
	claim.Lease = time.Minute
	claimed, _ := q.Claim(start, claim)
	return claimed
}

// What was added twice and is not leased is claimed again, for its store to judge: it may be settled.
func TestQueue_AddedTwiceAndSettled_IsClaimedAgain(t *testing.T) {
	var q Queue
	add(&q, "a", 1, start)
	add(&q, "a", 1, start)
	for range 2 {
		claimed, _ := claimFor(&q, start, 9, 1, time.Minute)
		want(t, "with a cap of 1", names(claimed), "a1")
		q.Done(claimed[0].Token)
	}
	if n := q.Backlog(start, "").Pending; n != 0 || len(q.webhooks.all) != 0 {
		t.Errorf("%d are pending of %d webhooks at the end, want 0", n, len(q.webhooks.all))
	}
}

// A reservation of what was added twice has one token, and nothing of it stays behind.
func TestQueue_AddedTwice_ReservedOnce(t *testing.T) {
	var q Queue
	add(&q, "a", 1, start)
	add(&q, "a", 1, start)
	add(&q, "a", 2, start)
	tokens := q.Reserve("a", []uint64{1})
	got, _ := claim(&q, start, 9, 9)
	want(t, "beside the reservation", got, "a2")
	q.Done(tokens[1])
	if n := q.Backlog(start, "").Pending; n != 1 || len(q.leases) != 1 {
		t.Errorf("%d are pending and %d leased after the reservation ended, want the other one", n, len(q.leases))
	}
}
