package queue

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/webhooks"
)

func TestExpedite(t *testing.T) {
	var q Queue
	add(&q, "a", 1, at(time.Hour))
	add(&q, "a", 2, at(2*time.Hour))
	add(&q, "a", 3, at(3*time.Hour))
	recoverTo(&q, "a", 4, at(4*time.Hour))
	add(&q, "b", 5, at(time.Minute))
	for _, edit := range []struct {
		webhook string
		seq     uint64
		want    bool
	}{{"a", 2, true}, {"a", 4, true}, {"a", 5, false}, {"b", 1, false}, {"a", 9, false}, {"unknown", 1, false}} {
		if got := q.MakeDue(edit.webhook, edit.seq, at(time.Second)); got != edit.want {
			t.Errorf("MakeDue of %s %d = %v, want %v", edit.webhook, edit.seq, got, edit.want)
		}
	}
	if got, wait := claim(&q, start, 9, 9); len(got) != 0 || wait != time.Second-time.Millisecond {
		t.Errorf("claimed %v, wait %v, want nothing until just before 1s", got, wait)
	}
	claimed, wait := claimFor(&q, at(time.Second), 9, 9, time.Hour)
	want(t, "what was expedited, the last one first", names(claimed), "a4", "a2")
	if wait != 59*time.Second {
		t.Errorf("wait = %v, want 59s until b5 is due", wait)
	}
	if claimed[1].Attempt != 1 || claimed[0].Attempt != 3 || claimed[0].Before != 2 {
		t.Errorf("claimed %+v, want the numbers as they were", claimed)
	}
	if q.MakeDue("a", 2, start) {
		t.Error("expedited what is leased")
	}
	if !q.MakeDue("a", 1, at(time.Minute)) || !q.MakeDue("a", 3, at(2*time.Minute)) || !q.MakeDue("a", 3, at(30*time.Second)) {
		t.Error("not expedited behind what is leased")
	}
	got, _ := claim(&q, at(time.Minute), 9, 9)
	want(t, "at last", got, "a3", "b5", "a1")
}

func TestExpediteWhilePaused(t *testing.T) {
	var q Queue
	add(&q, "a", 1, at(time.Hour))
	q.Pause("a")
	if !q.MakeDue("a", 1, start) {
		t.Error("not expedited")
	}
	got, _ := claim(&q, start, 9, 9)
	want(t, "paused", got)
	q.Resume("a")
	got, _ = claim(&q, start, 9, 9)
	want(t, "resumed", got, "a1")
}

func TestRemove(t *testing.T) {
	var q Queue
	for seq := range uint64(10) {
		add(&q, "a", seq, at(time.Duration(seq)*time.Second))
		recoverTo(&q, "a", 10+seq, at(time.Duration(seq)*time.Second))
	}
	add(&q, "b", 20, at(time.Hour))
	got, _ := claim(&q, at(time.Second), 1, 9) // a0, and a is in line
	want(t, "the first", got, "a0")
	for _, edit := range []struct {
		webhook string
		seq     uint64
		want    bool
	}{{"a", 0, false}, {"a", 1, true}, {"a", 1, false}, {"a", 5, true}, {"a", 9, true}, {"a", 10, true}, {"a", 19, true}, {"a", 20, false}, {"b", 20, true}, {"b", 20, false}, {"c", 1, false}} {
		if got := q.Remove(edit.webhook, edit.seq); got != edit.want {
			t.Errorf("Remove of %s %d = %v, want %v", edit.webhook, edit.seq, got, edit.want)
		}
	}
	if diff := cmp.Diff(webhooks.Backlog{Pending: 15, OldestDue: at(time.Second).UTC()}, q.Backlog(at(4*time.Second), "")); diff != "" {
		t.Errorf("Backlog (-want +got):\n%s", diff)
	}
	got, wait := claim(&q, at(4*time.Second), 99, 99)
	want(t, "the rest that is due", got, "a2", "a3", "a4", "a11", "a12", "a13", "a14")
	if wait != time.Second {
		t.Errorf("wait = %v, want 1s until a15 is due", wait)
	}
	for _, seq := range []uint64{15, 6, 7, 8, 16, 17, 18} {
		if !q.Remove("a", seq) {
			t.Errorf("%d was not removed", seq)
		}
	}
	if got, wait := claim(&q, at(5*time.Second), 9, 99); len(got) != 0 || wait != 56*time.Second {
		t.Errorf("claimed %v, wait %v after all that waits was removed, want nothing until the leases end", got, wait)
	}
	add(&q, "a", 30, at(5*time.Second))
	got, _ = claim(&q, at(5*time.Second), 9, 99)
	want(t, "added after the last was removed", got, "a30")
}

func TestSeize(t *testing.T) {
	var q Queue
	for seq := range uint64(4) {
		add(&q, "a", seq, start)
	}
	c, _ := claimFor(&q, start, 1, 9, time.Minute)
	tokens := q.Reserve("a", []uint64{9, 0, 3, 1})
	if token, ok := tokens[9]; token != 0 || !ok {
		t.Errorf("Reserve of what is not pending = %v, %v, want 0, true", token, ok)
	}
	if _, ok := tokens[0]; ok {
		t.Error("a leased one was reserved")
	}
	if len(tokens) != 3 || tokens[1] == 0 || tokens[3] == 0 || tokens[1] == tokens[3] {
		t.Errorf("reserved %v, want 1 and 3", tokens)
	}
	if tokens := q.Reserve("a", []uint64{1}); len(tokens) != 0 {
		t.Error("what is reserved was reserved")
	}
	if diff := cmp.Diff(map[uint64]bool{0: true, 1: true, 3: true}, q.Leases()); diff != "" {
		t.Errorf("Leases (-want +got):\n%s", diff)
	}
	q.Done(c[0].Token)
	if got := q.Backlog(at(time.Hour), "a").Pending; got != 3 {
		t.Errorf("%d pending, want those reserved, too", got)
	}
	got, wait := claim(&q, at(time.Hour), 9, 1) // seizing is for long, and does not count
	want(t, "what is not reserved", got, "a2")
	if wait != time.Minute {
		t.Errorf("wait = %v, want until the lease ends", wait)
	}
	q.Done(tokens[1])
	q.Release(tokens[3])
	q.Release(tokens[1]) // it has ended
	got, _ = claim(&q, at(time.Hour), 9, 9)
	want(t, "given back", got, "a3")
	if got := q.Backlog(at(time.Hour), "").Pending; got != 2 {
		t.Errorf("%d pending, want the two leased", got)
	}
}

func TestLeasedAndOwed(t *testing.T) {
	var q Queue
	add(&q, "a", 1, start)
	recoverTo(&q, "a", 2, start)
	add(&q, "b", 1, at(time.Hour))
	c, _ := claimFor(&q, start, 9, 9, time.Minute)
	for _, name := range []struct {
		webhook string
		seq     uint64
		want    bool
	}{{"a", 1, true}, {"a", 2, true}, {"b", 1, false}, {"a", 3, false}, {"c", 1, false}} {
		if got := q.Leased(name.webhook, name.seq); got != name.want {
			t.Errorf("Leased of %s %d = %v, want %v", name.webhook, name.seq, got, name.want)
		}
	}
	q.Release(c[0].Token)
	q.Done(c[1].Token)
	if q.Leased("a", 1) || q.Leased("a", 2) {
		t.Error("Leased after the lease ended")
	}
	if diff := cmp.Diff([][]uint64{{1}, {1}, nil}, [][]uint64{pendingOf(&q, "a"), pendingOf(&q, "b"), pendingOf(&q, "c")}); diff != "" {
		t.Errorf("what is pending (-want +got):\n%s", diff)
	}
}

func TestBacklog(t *testing.T) {
	var q Queue
	check := func(what string, now time.Time, webhook string, pending int, oldest time.Time) {
		t.Helper()
		if !oldest.IsZero() {
			oldest = oldest.UTC()
		}
		if diff := cmp.Diff(webhooks.Backlog{Pending: pending, OldestDue: oldest}, q.Backlog(now, webhook)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("of an empty queue", start, "", 0, time.Time{})
	check("of none", start, "a", 0, time.Time{})
	add(&q, "a", 1, at(2*time.Second))
	recoverTo(&q, "a", 2, at(time.Second))
	add(&q, "b", 3, at(3*time.Second))
	check("nothing due", start, "", 3, time.Time{})
	check("all", at(time.Minute), "", 3, at(time.Second))
	check("of a", at(time.Minute), "a", 2, at(time.Second))
	check("of b", at(time.Minute), "b", 1, at(3*time.Second))
	check("just due", at(3*time.Second), "b", 1, at(3*time.Second))
	check("of none", at(time.Minute), "c", 0, time.Time{})
	c, _ := claimFor(&q, at(time.Second), 1, 9, time.Hour)
	check("what is leased is not waiting", at(time.Minute), "a", 2, at(2*time.Second))
	q.Pause("a")
	check("paused", at(time.Minute), "a", 2, time.Time{})
	check("paused", at(time.Minute), "", 3, at(3*time.Second))
	q.Resume("a")
	q.Release(c[0].Token)
	check("freed", at(time.Minute), "", 3, at(time.Second))
	c, _ = claimFor(&q, at(time.Minute), 9, 9, time.Hour)
	check("all leased", at(time.Minute), "", 3, time.Time{})
	q.Done(c[0].Token)
	check("one done", at(time.Minute), "", 2, time.Time{})
	q.Drop("a")
	check("dropped", at(time.Minute), "a", 0, time.Time{})
	check("b is left", at(time.Minute), "", 1, time.Time{})
}
