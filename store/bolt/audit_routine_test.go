package bolt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
)

// TestAuditEntries_RoutineAtRandom_ListsAreOfWhatIsKept stores and purges audit entries of a few
// targets at random, with more routine entries than the store keeps. Each list must contain the
// kept entries, and the file must stay sound.
func TestAuditEntries_RoutineAtRandom_ListsAreOfWhatIsKept(t *testing.T) {
	t.Parallel()
	type stored struct {
		audit.Entry
		at time.Time
	}
	s := openTemp(t)
	random := rand.New(rand.NewPCG(27, 18))
	accounts := []string{"a", "b"}
	kept := make(map[string][]stored)
	routine := make(map[string]int)
	now := s.clock.Time().Add(-time.Hour)

	newAuditEntry := func(i int) audit.Entry {
		n := audit.Entry{
			ID: fmt.Sprintf("aud_%08d", i), Account: accounts[min(random.IntN(20), 1)], At: now, Action: audit.KeyChanged,
			Target: audit.Target{Kind: audit.TargetKey, ID: fmt.Sprint("key_", random.IntN(5))}, Changed: []string{"name"}, Pending: random.IntN(3) == 0,
		}
		switch {
		case i%5000 < 8: // a separate target, of which this may be the last entry
			n.Target.ID = fmt.Sprint("rare_", i)
		case random.IntN(50) == 0:
			n.Action, n.Changed = audit.KeyRotated, nil
		}
		return n
	}
	check := func() {
		t.Helper()
		for _, account := range accounts {
			want := make(map[audit.Target][]string)
			for _, n := range slices.Backward(kept[account]) {
				want[audit.Target{}] = append(want[audit.Target{}], n.ID)
				want[n.Target] = append(want[n.Target], n.ID)
			}
			for target, want := range want {
				var got []string
				for query := (audit.Query{Target: target, Limit: 3000}); ; {
					page, err := s.ListAuditEntries(t.Context(), account, query)
					if err != nil {
						t.Fatal(err)
					}
					for _, n := range page.Entries {
						got = append(got, n.ID)
					}
					if query.After = page.Next; page.Next == "" {
						break
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("audit entries of %s, %v (-want +got):\n%s", account, target, diff)
				}
			}
		}
		CheckSound(t, s)
	}
	const steps, perStep, purged = 170, 100, 115
	for step := range steps {
		var list []audit.Entry
		for i := range perStep {
			list = append(list, newAuditEntry(step*perStep+i))
		}
		now = now.Add(time.Second)
		errs := together(t, s, func(b *batch) error {
			for _, n := range list {
				if err := b.appendAuditEntry(n, now); err != nil {
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
		for account := range kept { // the oldest routine entries make room
			kept[account] = slices.DeleteFunc(kept[account], func(n stored) bool {
				excess := n.Routine() && routine[account] > audit.MaxRoutine
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
				if more, err = s.Purge(t.Context(), driver.Purge{AuditEntries: before, Limit: 300}); err != nil {
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
	if routine["b"] != audit.MaxRoutine {
		t.Errorf("coverage precondition failed: %d routine audit entries are kept, want %d", routine["b"], audit.MaxRoutine)
	}
}

// TestPurge_AuditEntryStoredUnderAClockAhead_StaysPending stores an audit entry after older ones,
// while the clock is ahead. A purge of the older entries must keep it, and it must stay pending.
func TestPurge_AuditEntryStoredUnderAClockAhead_StaysPending(t *testing.T) {
	s := openTemp(t)
	now := s.clock.Time()
	errs := together(t, s, func(b *batch) error {
		for _, at := range []time.Time{now.Add(-48 * time.Hour), now.Add(48 * time.Hour)} {
			id := at.Format(time.DateOnly)
			n := audit.Entry{ID: id, Account: "acct", At: at, Action: audit.KeyCreated, Target: audit.Target{Kind: audit.TargetKey, ID: id}, Pending: true}
			if err := b.appendAuditEntry(n, at); err != nil {
				return err
			}
		}
		return nil
	})
	if errs[0] != nil {
		t.Fatal(errs[0])
	}
	if _, err := s.Purge(t.Context(), driver.Purge{AuditEntries: now.Add(-24 * time.Hour), Limit: 100}); err != nil {
		t.Fatal(err)
	}
	list, err := s.PendingAuditEntries(t.Context(), "acct", 9)
	if err != nil || len(list) != 1 || list[0].Entry.At.Before(now) {
		t.Errorf("PendingAuditEntries = %v, %v, want the audit entry stored under the clock ahead", list, err)
	}
}
