package audit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/memory"
)

// In this test the wait of a failed target ends during a slow round. Its later audit entry must not
// be delivered before the skipped one.
func TestRun_BackoffEndsDuringRound_KeepsOrder(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, h := memory.New(), &host{}
		var failed atomic.Bool
		h.failing(func(_ context.Context, n audit.Entry) error {
			if n.Target.ID == "bad" && !failed.Swap(true) {
				return errors.New("not now")
			}
			if n.Target.ID == "slow" {
				time.Sleep(700 * time.Millisecond)
			}
			return nil
		})
		add(t, store, pending("acct", "bad", 1), pending("acct", "slow", 2), pending("acct", "slow", 3), pending("acct", "bad", 4))
		stop := run(t, store, h)
		time.Sleep(time.Minute)
		wantDelivered(t, h, "slow:aud_2", "slow:aud_3", "bad:aud_1", "bad:aud_4")
		stop()
	})
}

// The account has more audit entries than a page, and calls for its other targets fail.
func TestRun_MoreAuditEntriesThanAPage_KeepsOrderOfEachTarget(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, h := memory.New(), &host{}
		var calls atomic.Int64
		h.failing(func(_ context.Context, n audit.Entry) error {
			time.Sleep(4 * time.Millisecond)
			if calls.Add(1)%7 == 0 {
				return errors.New("not now")
			}
			return nil
		})
		want := make(map[string][]string)
		for i := range 900 {
			key := fmt.Sprint("key", i%9)
			add(t, store, pending("acct", key, i))
			want[key] = append(want[key], fmt.Sprint(key, ":aud_", i))
		}
		stop := run(t, store, h)
		time.Sleep(24 * time.Hour)
		stop()
		got := make(map[string][]string)
		for _, delivered := range h.drain() {
			got[delivered[:4]] = append(got[delivered[:4]], delivered)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("delivered audit entries by key (-want +got):\n%s", diff)
		}
	})
}

// An unwritableStore can be read, but TakeAuditEntries fails.
type unwritableStore struct {
	*memory.Store
	fails atomic.Bool
}

func (s *unwritableStore) TakeAuditEntries(ctx context.Context, numbers []uint64) error {
	if s.fails.Load() {
		return errors.New("the disk is full")
	}
	return s.Store.TakeAuditEntries(ctx, numbers)
}

func TestRun_StoreNotWritable_DeliversEachAuditEntryOnce(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, h := &unwritableStore{Store: memory.New()}, &host{}
		store.fails.Store(true)
		add(t, store, pending("acct", "a", 1), pending("acct", "b", 2))
		stop := run(t, store, h)
		time.Sleep(time.Hour)
		wantDelivered(t, h, "a:aud_1", "b:aud_2")
		store.fails.Store(false)
		add(t, store, pending("acct", "a", 3))
		time.Sleep(time.Minute)
		wantDelivered(t, h, "a:aud_3")
		stop()
	})
}

// The erasure leaves the account without pending audit entries, so its backoff must be forgotten.
func TestRun_FailingAccountErased_ForgetsItsBackoff(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, h := memory.New(), &host{}
		h.failing(func(context.Context, audit.Entry) error { return errors.New("not now") })
		for i := range 20 {
			add(t, store, pending("acct", fmt.Sprint("key", i), i))
		}
		stop := run(t, store, h)
		time.Sleep(10 * time.Minute)
		if _, _, err := store.EraseAccount(t.Context(), "acct", 100); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		h.failing(nil)
		add(t, store, pending("acct", "key0", 100))
		time.Sleep(2 * time.Second)
		wantDelivered(t, h, "key0:aud_100")
		stop()
	})
}

// One account fails or has many audit entries; two others have an audit entry now and then.
func TestRun_OneAccountFailsOrFloods_OthersGetAuditEntriesWithinASecond(t *testing.T) {
	for name, test := range map[string]struct {
		keys, each int // keys of the account, and audit entries per key
		fails      bool
	}{
		"300 failing keys":          {300, 1, true},
		"1,000 failing keys":        {1000, 1, true},
		"10 failing keys of 100":    {10, 100, true},
		"3,000 changes of one key":  {1, 3000, false},
		"3,000 changes of 300 keys": {300, 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			testbubble.Run(t, func(t *testing.T) {
				store, h := memory.New(), &host{}
				var mu sync.Mutex
				added, delays := make(map[string]time.Time), make(map[string]time.Duration)
				h.failing(func(_ context.Context, n audit.Entry) error {
					time.Sleep(4 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					if n.Account != "floods" {
						delays[n.ID] = time.Since(added[n.ID])
					} else if test.fails {
						return errors.New("not now")
					}
					return nil
				})
				number := 0
				for range test.each {
					for key := range test.keys {
						number++
						add(t, store, pending("floods", fmt.Sprint("key", key), number))
					}
				}
				stop := run(t, store, h)
				for range 50 {
					time.Sleep(777 * time.Millisecond)
					number++
					for _, account := range []string{"a", "z"} {
						n := pending(account, "key", number)
						n.ID += account
						mu.Lock()
						added[n.ID] = time.Now()
						mu.Unlock()
						add(t, store, n)
					}
				}
				time.Sleep(2 * time.Second)
				stop()
				if len(delays) != 100 {
					t.Errorf("%d audit entries of other accounts delivered, want 100", len(delays))
				}
				for id, took := range delays {
					if took > time.Second+200*time.Millisecond { // a pause and one account's time
						t.Errorf("%s delivered after %v, want at most a second", id, took)
					}
				}
			})
		})
	}
}

// A service that loses the lease during a call must drop the entries it has read: the new holder
// has delivered them, and perhaps later ones.
func TestRun_LeaseLostDuringCall_DropsRemainingAuditEntries(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, a, b := memory.New(), &host{}, &host{}
		a.failing(func(_ context.Context, n audit.Entry) error {
			if n.ID == "aud_1" {
				time.Sleep(5 * time.Minute)
			}
			return nil
		})
		add(t, store, pending("acct", "key", 1), pending("acct", "key", 2))
		stopA := run(t, store, a)
		synctest.Wait()
		stopB := run(t, store, b)
		time.Sleep(4 * time.Minute)
		wantDelivered(t, b, "key:aud_1", "key:aud_2")
		stopB()
		time.Sleep(5 * time.Minute)
		wantDelivered(t, a, "key:aud_1")
		stopA()
	})
}
