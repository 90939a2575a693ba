package auditlog_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/store/bolt/boltops"
	"github.com/storageapi/storageapi/store/bolt/internal/auditlog"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/pagefile"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// A trail is the audit trail of a new file.
type trail struct {
	*testing.T
	path string
	db   *bbolt.DB
}

func newTrail(t *testing.T) *trail {
	l := &trail{T: t, path: filepath.Join(t.TempDir(), "storage.db")}
	if err := schema.CreateFile(l.path); err != nil {
		t.Fatal(err)
	}
	l.open()
	t.Cleanup(func() { _ = l.db.Close() })
	return l
}

func (l *trail) open() {
	l.Helper()
	var err error
	if l.db, _, err = pagefile.Open(l.path, time.Now(), &bbolt.Options{NoSync: true}); err != nil {
		l.Fatal(err)
	}
}

// step runs a step in a transaction of its own.
func (l *trail) step(do func(auditlog.Step) error) {
	l.Helper()
	err := l.db.Update(func(tx *bbolt.Tx) error { return do(auditlog.Step{Tx: &groupcommit.Tx{Bolt: tx}}) })
	if err != nil {
		l.Fatal(err)
	}
}

// purge removes the entries stored before the given time, 300 at a time.
func (l *trail) purge(before time.Time, ahead func(time.Time) bool) {
	l.Helper()
	for left := 0; left <= 0; {
		left = 300
		l.step(func(s auditlog.Step) error { return s.Purge(before, ahead, &left) })
	}
}

// list returns the IDs of the account's entries, or of a target's entries, page by page.
func (l *trail) list(account string, target audit.Target) (ids []string) {
	l.Helper()
	err := l.db.View(func(tx *bbolt.Tx) error {
		for query := (audit.Query{Target: target, Limit: 3000}); ; {
			page, err := auditlog.List(tx, cursor.Key{}, account, query)
			if err != nil {
				return err
			}
			for _, n := range page.Entries {
				ids = append(ids, n.ID)
			}
			if query.After = page.Next; page.Next == "" {
				return nil
			}
		}
	})
	if err != nil {
		l.Fatal(err)
	}
	return ids
}

// pending returns the IDs of the account's pending entries.
func (l *trail) pending(account string) (ids []string) {
	l.Helper()
	err := l.db.View(func(tx *bbolt.Tx) error {
		for _, n := range auditlog.Pending(tx, account, 1<<20) {
			ids = append(ids, n.Entry.ID)
		}
		return nil
	})
	if err != nil {
		l.Fatal(err)
	}
	return ids
}

// wantSound checks that Verify finds no problem in the file.
func (l *trail) wantSound() {
	l.Helper()
	if err := l.db.Close(); err != nil {
		l.Fatal(err)
	}
	if report, err := boltops.Verify(l.path, nil); err != nil || report.Err() != nil {
		l.Fatalf("Verify: %v, %v, want a sound file", err, report.Err())
	}
	l.open()
}

func notAhead(time.Time) bool { return false }

// The test stores and purges audit entries of a few targets at random, with more routine entries
// than the store keeps. Each list must contain the kept entries, and the file must stay sound.
func TestAuditEntries_RandomRoutine_ListsMatchKeptEntries(t *testing.T) {
	t.Parallel()
	type stored struct {
		audit.Entry
		at time.Time
	}
	l := newTrail(t)
	random := rand.New(rand.NewPCG(27, 18))
	accounts := []string{"a", "b"}
	kept := make(map[string][]stored)
	routine := make(map[string]int)
	now := time.Now().Add(-time.Hour)

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
				if diff := cmp.Diff(want, l.list(account, target)); diff != "" {
					t.Fatalf("audit entries of %s, %v (-want +got):\n%s", account, target, diff)
				}
			}
		}
		l.wantSound()
	}
	const steps, perStep, purged = 170, 100, 115
	for step := range steps {
		var list []audit.Entry
		for i := range perStep {
			list = append(list, newAuditEntry(step*perStep+i))
		}
		now = now.Add(time.Second)
		l.step(func(s auditlog.Step) error {
			for i := range list {
				if err := s.Append(&list[i], now); err != nil {
					return err
				}
			}
			return nil
		})
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
			l.purge(before, notAhead)
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

// The test stores an audit entry after older ones, while the clock is ahead. A purge of the older
// entries must keep it, and it must stay pending.
func TestPurge_AuditEntryFromClockAhead_StaysPending(t *testing.T) {
	l, now := newTrail(t), time.Now()
	for i, at := range []time.Time{now.Add(-48 * time.Hour), now.Add(48 * time.Hour)} {
		l.step(func(s auditlog.Step) error {
			id := fmt.Sprint("aud_", 1+i)
			return s.Append(&audit.Entry{ID: id, Account: "acct", At: at, Action: audit.KeyCreated, Target: audit.Target{Kind: audit.TargetKey, ID: id}, Pending: true}, at)
		})
	}
	l.purge(now.Add(-24*time.Hour), func(at time.Time) bool { return at.After(now) })
	if diff := cmp.Diff([]string{"aud_2"}, l.pending("acct")); diff != "" {
		t.Errorf("pending audit entries (-want +got):\n%s", diff)
	}
	l.wantSound()
}

// The test erases an account in steps. The file must stay sound, and the numbers of the erased
// entries must not be used again.
func TestErase_SomeEntriesAtATime_RemovesOnlyThoseOfTheAccount(t *testing.T) {
	l, now := newTrail(t), time.Now()
	add := func(i int, account string) {
		l.step(func(s auditlog.Step) error {
			target := audit.Target{Kind: audit.TargetWebhook, ID: fmt.Sprint("wh_", i%3)}
			return s.Append(&audit.Entry{ID: fmt.Sprintf("aud_%03d", i), Account: account, Action: audit.WebhookFailing, Target: target, Pending: true}, now)
		})
	}
	for i := range 20 {
		add(i, []string{"kept", "erased"}[i%2])
	}
	kept, erased := l.list("kept", audit.Target{}), 0
	for erased < 10 {
		before := erased
		l.step(func(s auditlog.Step) error {
			n, err := s.Erase("erased", 4)
			erased += n
			return err
		})
		if erased == before {
			t.Fatalf("erased %d audit entries, want 10", erased)
		}
	}
	if got := len(l.list("erased", audit.Target{})) + len(l.pending("erased")); got != 0 {
		t.Errorf("got %d audit entries of the erased account, want none", got)
	}
	add(21, "kept")
	if diff := cmp.Diff(append([]string{"aud_021"}, kept...), l.list("kept", audit.Target{})); diff != "" {
		t.Errorf("audit entries of the other account (-want +got):\n%s", diff)
	}
	err := l.db.View(func(tx *bbolt.Tx) error {
		if last, _ := tx.Bucket(schema.Audit).Cursor().Last(); record.Number(last) != 21 {
			t.Errorf("the new audit entry has number %d, want 21", record.Number(last))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.wantSound()
}
