package bolt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// TestNotices_RoutineAtRandom_ListsAreOfWhatIsKept: notices of few targets are stored and purged at
// random, more routine ones than are kept. Each list has what is kept, and the file stays sound.
func TestNotices_RoutineAtRandom_ListsAreOfWhatIsKept(t *testing.T) {
	t.Parallel()
	type stored struct {
		notices.Notice
		at time.Time
	}
	s := openTemp(t)
	random := rand.New(rand.NewPCG(27, 18))
	accounts := []string{"a", "b"}
	kept := make(map[string][]stored)
	routine := make(map[string]int)
	now := s.clock.Time().Add(-time.Hour)

	newNotice := func(i int) notices.Notice {
		n := notices.Notice{
			ID: fmt.Sprintf("ntc_%08d", i), Account: accounts[min(random.IntN(20), 1)], At: now, Action: notices.KeyChanged,
			Target: notices.Target{Kind: notices.TargetKey, ID: fmt.Sprint("key_", random.IntN(5))}, Changed: []string{"name"}, Pending: random.IntN(3) == 0,
		}
		switch {
		case i%5000 < 8: // a target of its own, whose last notice it may be
			n.Target.ID = fmt.Sprint("rare_", i)
		case random.IntN(50) == 0:
			n.Action, n.Changed = notices.KeyRotated, nil
		}
		return n
	}
	check := func() {
		t.Helper()
		for _, account := range accounts {
			want := make(map[notices.Target][]string)
			for _, n := range slices.Backward(kept[account]) {
				want[notices.Target{}] = append(want[notices.Target{}], n.ID)
				want[n.Target] = append(want[n.Target], n.ID)
			}
			for target, want := range want {
				var got []string
				for query := (notices.Query{Target: target, Limit: 3000}); ; {
					page, err := s.ListNotices(t.Context(), account, query)
					if err != nil {
						t.Fatal(err)
					}
					for _, n := range page.Notices {
						got = append(got, n.ID)
					}
					if query.After = page.Next; page.Next == "" {
						break
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("notices of %s, %v (-want +got):\n%s", account, target, diff)
				}
			}
		}
		CheckSound(t, s)
	}
	const steps, perStep, purged = 170, 100, 115
	for step := range steps {
		var list []notices.Notice
		for i := range perStep {
			list = append(list, newNotice(step*perStep+i))
		}
		now = now.Add(time.Second)
		errs := together(t, s, func(b *batch) error {
			for _, n := range list {
				if err := b.appendNotice(n, now); err != nil {
					return err
				}
			}
			return nil
		})
		if errs[0] != nil {
			t.Fatal(errs[0])
		}
		for _, n := range list {
			kept[n.Account] = append(kept[n.Account], stored{n, now})
			if n.Routine() {
				routine[n.Account]++
			}
		}
		for account := range kept { // the oldest routine ones make room
			kept[account] = slices.DeleteFunc(kept[account], func(n stored) bool {
				excess := n.Routine() && routine[account] > notices.MaxRoutine
				if excess {
					routine[account]--
				}
				return excess
			})
		}
		if step == purged || step == purged+1 {
			before := now.Add(-70 * time.Second)
			for more := true; more; {
				var err error
				if more, err = s.Purge(t.Context(), webhooks.Purge{Notices: before, Limit: 300}); err != nil {
					t.Fatal(err)
				}
			}
			for account := range kept {
				kept[account] = slices.DeleteFunc(kept[account], func(n stored) bool {
					old := n.at.Before(before)
					if old && n.Routine() {
						routine[account]--
					}
					return old
				})
			}
		}
		if step%85 == 84 || step >= purged && step < purged+3 {
			check()
		}
	}
	if routine["b"] != notices.MaxRoutine {
		t.Errorf("coverage precondition failed: %d routine notices are kept, want %d", routine["b"], notices.MaxRoutine)
	}
}

// TestPurge_NoticeStoredUnderAClockAhead_StaysPending: a notice after the old ones that was stored
// under a clock that was ahead is not purged with them, and the host is still to be told.
func TestPurge_NoticeStoredUnderAClockAhead_StaysPending(t *testing.T) {
	s := openTemp(t)
	now := s.clock.Time()
	errs := together(t, s, func(b *batch) error {
		for _, at := range []time.Time{now.Add(-48 * time.Hour), now.Add(48 * time.Hour)} {
			id := at.Format(time.DateOnly)
			n := notices.Notice{ID: id, Account: "acct", At: at, Action: notices.KeyCreated, Target: notices.Target{Kind: notices.TargetKey, ID: id}, Pending: true}
			if err := b.appendNotice(n, at); err != nil {
				return err
			}
		}
		return nil
	})
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	if _, err := s.Purge(t.Context(), webhooks.Purge{Notices: now.Add(-24 * time.Hour), Limit: 100}); err != nil {
		t.Fatal(err)
	}
	list, err := s.PendingNotices(t.Context(), "acct", 9)
	if err != nil || len(list) != 1 || list[0].Notice.At.Before(now) {
		t.Errorf("PendingNotices = %v, %v, want the notice stored under the clock ahead", list, err)
	}
}
