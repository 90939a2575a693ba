package queue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/webhooks"
)

// recoverTo adds a recovered delivery that two attempts were made at.
func recoverTo(q *Queue, webhook string, seq uint64, due time.Time) {
	q.Add(Pending{Webhook: webhook, Account: "acct", Seq: seq, Due: due, Attempts: 2, Before: 2, Recovered: true})
}

// names says what was claimed.
func names(claimed []Claimed) (list []string) {
	for _, c := range claimed {
		list = append(list, fmt.Sprint(c.Webhook, c.Seq))
	}
	return list
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: claimed %v, want %v", what, got, want)
	}
}

func TestRecoveredComesLast(t *testing.T) {
	var q Queue
	recoverTo(&q, "a", 1, start)
	recoverTo(&q, "b", 2, start)
	recoverTo(&q, "a", 3, start)
	add(&q, "a", 4, at(time.Second))
	add(&q, "c", 5, at(time.Second))
	add(&q, "c", 6, at(time.Second))

	now := at(time.Second)
	got, _ := claim(&q, now, 2, 9)
	want(t, "live ones first, in turns", got, "a4", "c5")
	add(&q, "d", 7, now)
	got, _ = claim(&q, now, 3, 9)
	want(t, "then those that came meanwhile", got, "c6", "d7", "a1")
	claimed, _ := claimFor(&q, now, 9, 9, time.Minute)
	want(t, "recovered ones in turns as well", names(claimed), "b2", "a3")
	for _, c := range claimed {
		if c.Attempt != 3 || c.Before != 2 {
			t.Errorf("claimed %+v, want attempt 3, after 2 before", c)
		}
	}

	// Whatever ends the lease, it stays in its lane.
	q.Retry(claimed[0].Token, at(2*time.Second), 3, false)
	q.Release(claimed[1].Token)
	add(&q, "b", 8, at(3*time.Second))
	add(&q, "a", 9, at(3*time.Second))
	claimed, _ = claimFor(&q, at(3*time.Second), 9, 9, time.Minute)
	want(t, "after Retry and Release", names(claimed), "b8", "a9", "a3", "b2")
	if c := claimed[3]; c.Attempt != 4 || c.Before != 2 {
		t.Errorf("claimed %+v after a Retry, want attempt 4, after 2 before", c)
	}
	add(&q, "a", 10, at(time.Hour))
	got, _ = claim(&q, at(time.Hour), 99, 9)
	if i := slices.Index(got, "a10"); len(got) != 10 || i >= 7 {
		t.Errorf("claimed %v after leases ran out, want a10 among the 7 live ones", got)
	}
}

func TestNothingLiveIsDueYet(t *testing.T) {
	var q Queue
	add(&q, "a", 1, at(time.Minute))
	recoverTo(&q, "a", 2, at(2*time.Second))
	got, wait := claim(&q, start, 9, 9)
	if want(t, "before either", got); wait != 2*time.Second {
		t.Errorf("wait = %v, want 2s until the recovered one is due", wait)
	}
	got, wait = claim(&q, at(2*time.Second), 9, 9)
	if want(t, "the recovered one", got, "a2"); wait != 58*time.Second {
		t.Errorf("wait = %v, want 58s until the live one is due", wait)
	}
}

// TestPauseResumeDropBothLanes does so with the lanes wherever they can be.
func TestPauseResumeDropBothLanes(t *testing.T) {
	for _, after := range []func(*Queue){
		func(*Queue) {}, // among the timers
		func(q *Queue) { claim(q, at(time.Second), 1, 1) },               // in line
		func(q *Queue) { claim(q, at(time.Second), 2, 9) },               // one of them empty
		func(q *Queue) { q.Pause("a"); claim(q, at(time.Second), 9, 9) }, // out of line
	} {
		fill := func() *Queue {
			q := &Queue{}
			for i := range uint64(3) {
				add(q, "a", i, at(time.Second))
				recoverTo(q, "a", 10+i, at(time.Second))
				add(q, "b", 20+i, at(time.Hour))
				recoverTo(q, "b", 30+i, at(time.Hour))
			}
			claim(q, start, 1, 1)
			after(q)
			return q
		}

		q := fill()
		leased := len(q.leases)
		q.Pause("a")
		q.Pause("a")
		got, wait := claim(q, at(2*time.Second), 9, 9)
		if want(t, "paused", got); wait == 0 {
			t.Error("wait = 0 with all that is due paused")
		}
		add(q, "a", 3, start)
		recoverTo(q, "a", 13, start)
		got, _ = claim(q, at(2*time.Second), 9, 9)
		want(t, "added while paused", got)
		q.Resume("a")
		q.Resume("a")
		got, _ = claim(q, at(2*time.Second), 9, 9)
		if len(got) != 8-leased || got[0] != "a3" {
			t.Errorf("claimed %v after Resume, want all that was not leased before, a3 first", got)
		}

		q = fill()
		q.Drop("a")
		got, _ = claim(q, at(2*time.Second), 9, 9)
		want(t, "dropped", got)
		if diff := cmp.Diff(webhooks.Backlog{Pending: 6}, q.Backlog(at(2*time.Second), "")); diff != "" {
			t.Errorf("Backlog after Drop (-want +got):\n%s", diff)
		}
		recoverTo(q, "a", 40, start) // another webhook of that id
		add(q, "a", 41, start)
		got, _ = claim(q, at(2*time.Second), 9, 9)
		want(t, "added after Drop", got, "a41", "a40")
		got, _ = claim(q, at(time.Hour), 9, 9)
		if len(got) != 8 {
			t.Errorf("claimed %v, want all that is pending for b, and what a was leased", got)
		}
	}
}
