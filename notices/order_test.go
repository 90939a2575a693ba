package notices_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// A lateStore shows the first notice only once a second page was asked for, as a store does
// whose transactions commit in another order than they were given numbers.
type lateStore struct {
	*memory.Store
	shown bool
}

func (s *lateStore) PendingNotices(ctx context.Context, after uint64, limit int) ([]notices.Numbered, error) {
	s.shown = s.shown || after > 0
	if !s.shown {
		after = 1
	}
	return s.Store.PendingNotices(ctx, after, limit)
}

func TestNothingOvertakesFromPageToPage(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, h := &lateStore{Store: memory.New()}, &host{}
		add(t, store, pending("acct", "key", 1))
		for i := range 300 {
			add(t, store, pending("acct", fmt.Sprint("other", i), 2+i))
		}
		add(t, store, pending("acct", "key", 1000))
		stop := run(t, store, h)
		time.Sleep(time.Minute)
		stop()
		var of []string
		told := h.heard()
		for _, n := range told {
			if n == "key:ntc_1" || n == "key:ntc_1000" {
				of = append(of, n)
			}
		}
		if len(told) != 302 || len(of) != 2 || of[0] != "key:ntc_1" {
			t.Errorf("%d were told, of the key %v", len(told), of)
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

// While as many targets wait as may, those go on to be tried, one that never succeeds
// before them or not, and what is new comes after them.
func TestFullOfWaiting(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		defer notices.SetMaxWaiting(20)()
		store, h := memory.New(), &host{}
		var down atomic.Bool
		down.Store(true)
		h.failing(func(_ context.Context, n notices.Notice) error {
			if down.Load() || n.Target.ID == "key0" {
				return errors.New("not now")
			}
			return nil
		})
		for i := range 100 {
			add(t, store, pending("acct", fmt.Sprint("key", i), 2*i), pending("acct", fmt.Sprint("key", i), 2*i+1))
		}
		stop := run(t, store, h)
		time.Sleep(time.Hour)
		down.Store(false)
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if told := h.heard(); len(told) != 2*99 {
			t.Errorf("%d were told, want %d", len(told), 2*99)
		}
		stop()
	})
}

// Targets of which nothing is pending any more, since their account was erased, do not wait.
func TestWaitingIsForgotten(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		defer notices.SetMaxWaiting(20)()
		store, h := memory.New(), &host{}
		h.failing(func(_ context.Context, n notices.Notice) error {
			if n.Account == "erased" {
				return errors.New("not now")
			}
			return nil
		})
		for i := range 20 {
			add(t, store, pending("erased", fmt.Sprint("key", i), i))
		}
		stop := run(t, store, h)
		time.Sleep(time.Minute)
		if _, _, err := store.EraseAccount(t.Context(), "erased", 100); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			add(t, store, pending("acct", fmt.Sprint("key", i), i))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if told := h.heard(); len(told) != 100 {
			t.Errorf("%d were told, want 100", len(told))
		}
		stop()
	})
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
