package notices_test

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

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/memory"
)

// A target whose time comes in the middle of a slow round is told in the next one: what the
// round passed over is not overtaken.
func TestNothingOvertakesInASlowRound(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, h := memory.New(), &host{}
		var failed atomic.Bool
		h.failing(func(_ context.Context, n notices.Notice) error {
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
		wantHeard(t, h, "slow:ntc_2", "slow:ntc_3", "bad:ntc_1", "bad:ntc_4")
		stop()
	})
}

// The notices of a target are told in their order also where an account has more than are read at
// once, and others of its targets fail.
func TestNotify_MoreThanAPage_KeepsTheOrderOfEachTarget(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, h := memory.New(), &host{}
		var calls atomic.Int64
		h.failing(func(_ context.Context, n notices.Notice) error {
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
			want[key] = append(want[key], fmt.Sprint(key, ":ntc_", i))
		}
		stop := run(t, store, h)
		time.Sleep(24 * time.Hour)
		stop()
		got := make(map[string][]string)
		for _, told := range h.heard() {
			got[told[:4]] = append(got[told[:4]], told)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("told by key (-want +got):\n%s", diff)
		}
	})
}

// An unwritableStore can be read, and not be written.
type unwritableStore struct {
	*memory.Store
	fails atomic.Bool
}

func (s *unwritableStore) TakeNotices(ctx context.Context, numbers []uint64) error {
	if s.fails.Load() {
		return errors.New("the disk is full")
	}
	return s.Store.TakeNotices(ctx, numbers)
}

// While the store cannot be written, the host is not told the same again and again.
func TestToldOnceWhileTheStoreCannotBeWritten(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, h := &unwritableStore{Store: memory.New()}, &host{}
		store.fails.Store(true)
		add(t, store, pending("acct", "a", 1), pending("acct", "b", 2))
		stop := run(t, store, h)
		time.Sleep(time.Hour)
		wantHeard(t, h, "a:ntc_1", "b:ntc_2")
		store.fails.Store(false)
		add(t, store, pending("acct", "a", 3))
		time.Sleep(time.Minute)
		wantHeard(t, h, "a:ntc_3")
		stop()
	})
}

// An account of which nothing is pending any longer, since it was erased, does not wait.
func TestWaitingIsForgotten(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, h := memory.New(), &host{}
		h.failing(func(context.Context, notices.Notice) error { return errors.New("not now") })
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
		wantHeard(t, h, "key0:ntc_100")
		stop()
	})
}

// TestNotify_OneAccountFailsOrFloods_OthersAreToldWithinASecond has an account whose calls fail, or
// whose notices are many, beside two of which something happens now and then.
func TestNotify_OneAccountFailsOrFloods_OthersAreToldWithinASecond(t *testing.T) {
	for name, test := range map[string]struct {
		keys, each int // of the account, and notices of each
		fails      bool
	}{
		"300 keys that fail":        {300, 1, true},
		"1,000 keys that fail":      {1000, 1, true},
		"10 keys of 100 that fail":  {10, 100, true},
		"3,000 changes of one key":  {1, 3000, false},
		"3,000 changes of 300 keys": {300, 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			testbubble.Run(t, func(t *testing.T) {
				store, h := memory.New(), &host{}
				var mu sync.Mutex
				added, heard := make(map[string]time.Time), make(map[string]time.Duration)
				h.failing(func(_ context.Context, n notices.Notice) error {
					time.Sleep(4 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					if n.Account != "floods" {
						heard[n.ID] = time.Since(added[n.ID])
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
				if len(heard) != 100 {
					t.Errorf("%d of the others' notices were told, want 100", len(heard))
				}
				for id, took := range heard {
					if took > time.Second+200*time.Millisecond { // the pause, and a turn
						t.Errorf("%s was told after %v, want a second", id, took)
					}
				}
			})
		})
	}
}

// Who has lost the lease during a call does not go on with what it has read: another has
// told that, and maybe what came later.
func TestLeaseLostInTheMiddle(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, a, b := memory.New(), &host{}, &host{}
		a.failing(func(_ context.Context, n notices.Notice) error {
			if n.ID == "ntc_1" {
				time.Sleep(5 * time.Minute)
			}
			return nil
		})
		add(t, store, pending("acct", "key", 1), pending("acct", "key", 2))
		stopA := run(t, store, a)
		synctest.Wait()
		stopB := run(t, store, b)
		time.Sleep(4 * time.Minute)
		wantHeard(t, b, "key:ntc_1", "key:ntc_2")
		stopB()
		time.Sleep(5 * time.Minute)
		wantHeard(t, a, "key:ntc_1")
		stopA()
	})
}
