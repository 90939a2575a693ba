package apikeys_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/driver"
)

// lastUse returns the last use from Get, and fails the test if List returns an earlier one.
func lastUse(t *testing.T, s *apikeys.KeyService, id string) time.Time {
	t.Helper()
	key, err := s.Get(t.Context(), account, id)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := s.List(t.Context(), account, apikeys.KeyQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, listed := range keys.Keys {
		if listed.ID == id && listed.LastUsedAt.Before(key.LastUsedAt) {
			t.Errorf("Get says %v, then List says %v", key.LastUsedAt, listed.LastUsedAt)
		}
	}
	return key.LastUsedAt
}

func TestVerifyWritesNothing(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, service, key, token := newSpied(t)
		rotate(t, service, key.ID, time.Hour)
		store.writes, store.reads = 0, 0
		for range 1000 {
			accepted(t, service, token.Reveal())
			refused(t, service, numbered(1))
		}
		if store.writes != 0 || store.reads != 2000 || len(store.recorded()) != 0 {
			t.Errorf("%d writes, %d reads, %d uses recorded", store.writes, store.reads, len(store.recorded()))
		}
	})
}

func TestLastUse_BeforeAndAfterWrite_IsShown(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, service, key, token := newSpied(t)
		if at := lastUse(t, service, key.ID); !at.IsZero() {
			t.Errorf("a key that was never used was last used at %v", at)
		}
		time.Sleep(1500 * time.Microsecond)
		used := time.Now().UTC().Truncate(time.Millisecond)
		accepted(t, service, token.Reveal())
		if at := lastUse(t, service, key.ID); at != used {
			t.Errorf("before it is written: %v, want %v", at, used)
		}
		time.Sleep(time.Hour)
		if at := lastUse(t, service, key.ID); at != used {
			t.Errorf("after it is written: %v, want %v", at, used)
		}
		if got := store.recorded(); len(got) != 1 || len(got[0]) != 1 || got[0][0] != (driver.KeyUse{Account: account, ID: key.ID, Hash: token.Hash(), At: used}) {
			t.Errorf("recorded %v", got)
		}
	})
}

// A refused token does not count as a use; the previous token of a rotated key does.
func TestUses_RefusedTokens_DoNotCount(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		service := newService(t, newSpy(), apikeys.Config{})
		expired, token := create(t, service, time.Now().Add(time.Hour))
		time.Sleep(2 * time.Hour)
		refused(t, service, token.Reveal())
		if at := lastUse(t, service, expired.ID); !at.IsZero() {
			t.Errorf("an expired key was last used at %v", at)
		}
		rotated, old := create(t, service, time.Time{})
		rotate(t, service, rotated.ID, time.Hour)
		accepted(t, service, old.Reveal())
		if at := lastUse(t, service, rotated.ID); !at.Equal(time.Now().Truncate(time.Millisecond)) {
			t.Errorf("the old token's use is %v", at)
		}
	})
}

// Each token of a key has separate uses. If a token is replaced, its earlier uses remain uses of
// that token, even if they were not written yet.
func TestUses_PreviousToken_AreSeparate(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		service := newService(t, newSpy(), apikeys.Config{})
		key, old := create(t, service, time.Time{})
		want := func(last, previous time.Time) {
			t.Helper()
			got, err := service.Get(t.Context(), account, key.ID)
			if err != nil || !got.LastUsedAt.Equal(last) || !got.PreviousUsedAt.Equal(previous) {
				t.Errorf("used at %v, the previous token at %v, %v; want %v and %v", got.LastUsedAt, got.PreviousUsedAt, err, last, previous)
			}
		}
		use := func(token apikeys.Token) time.Time {
			time.Sleep(2 * time.Second)
			accepted(t, service, token.Reveal())
			return time.Now().UTC()
		}
		for _, pause := range []time.Duration{time.Millisecond, 2 * time.Minute} { // shorter and longer than the wait for a write
			first := use(old)
			want(first, time.Time{})
			time.Sleep(pause)
			_, young := rotate(t, service, key.ID, time.Hour)
			want(first, first)
			second := use(young)
			want(second, first)
			time.Sleep(pause)
			want(second, first)
			third := use(old)
			want(third, third)
			fourth := use(young)
			want(fourth, third)
			time.Sleep(pause)
			want(fourth, third)
			_, last := rotate(t, service, key.ID, 0) // the last use of an expired value is hidden …
			want(fourth, time.Time{})
			time.Sleep(pause)
			want(fourth, time.Time{})
			_, old = rotate(t, service, key.ID, 0)
			want(fourth, time.Time{}) // … but the last use of the key is shown
			refused(t, service, last.Reveal())
		}
	})
}

// The uses of a busy key are written at most once a minute, but the displayed time of the last use
// never lags by more than a second.
func TestUsesAreCoalesced(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := newSpy()
		service := newService(t, store, apikeys.Config{})
		busy, busyToken := create(t, service, time.Time{})
		create(t, service, time.Time{})
		const hours = 2
		for range hours * 3600 {
			accepted(t, service, busyToken.Reveal())
			accepted(t, service, busyToken.Reveal())
			time.Sleep(time.Second)
			if age := time.Since(lastUse(t, service, busy.ID)); age > time.Second+time.Millisecond {
				t.Fatalf("the last use shown is %v old", age)
			}
		}
		last, writes := time.Time{}, store.recorded()
		for _, batch := range writes {
			if len(batch) != 1 || batch[0].ID != busy.ID || batch[0].At.Sub(last) < 59*time.Second {
				t.Fatalf("recorded %v, after %v", batch, last)
			}
			last = batch[0].At
		}
		if len(writes) < hours*59 || len(writes) > hours*60 {
			t.Errorf("%d writes in %d hours", len(writes), hours)
		}
	})
}

// An idle service does not call the store.
func TestUses_IdleService_WritesNothing(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := newSpy()
		service := newService(t, store, apikeys.Config{})
		create(t, service, time.Time{})
		time.Sleep(24 * time.Hour)
		service.Close()
		if got := store.recorded(); len(got) != 0 {
			t.Errorf("recorded %v", got)
		}
	})
}

// stepped is a store whose RecordKeyUse takes 5 ms and records when each call began.
type stepped struct {
	*spy
	mu    sync.Mutex
	began []time.Time
}

func (s *stepped) RecordKeyUse(ctx context.Context, uses []driver.KeyUse) error {
	s.mu.Lock()
	s.began = append(s.began, time.Now())
	s.mu.Unlock()
	time.Sleep(5 * time.Millisecond)
	return s.spy.RecordKeyUse(ctx, uses)
}

// times returns when the calls began.
func (s *stepped) times() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.began)
}

// useKeys creates the given number of keys and verifies each. The returned check verifies that each
// use was recorded once, in order, in steps of at most 64.
func useKeys(t *testing.T, service *apikeys.KeyService, store *spy, keys int) (check func()) {
	for range keys {
		_, token := create(t, service, time.Time{})
		accepted(t, service, token.Reveal())
	}
	return func() {
		t.Helper()
		last, seen := "", 0
		for _, batch := range store.recorded() {
			if len(batch) == 0 || len(batch) > 64 {
				t.Errorf("a step of %d uses", len(batch))
			}
			for _, use := range batch {
				if use.ID <= last {
					t.Errorf("%s after %s", use.ID, last)
				}
				last = use.ID
				seen++
			}
		}
		if seen != keys {
			t.Errorf("%d uses were recorded, want %d", seen, keys)
		}
	}
}

// While uses are being written, the store is free for other writers four fifths of the time.
func TestUsesAreWrittenInSmallSteps(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := &stepped{spy: newSpy()}
		service := newService(t, store, apikeys.Config{MaxPerAccount: -1})
		check := useKeys(t, service, store.spy, 1300)
		time.Sleep(2 * time.Minute)
		check()
		began := store.times()
		for i := 1; i < len(began); i++ {
			if apart := began[i].Sub(began[i-1]); apart != 25*time.Millisecond {
				t.Errorf("step %d began %v after the one before", i, apart)
			}
		}
	})
}

// Close skips the pauses between steps, and no use is lost.
func TestClose_BetweenWriteSteps_LosesNoUse(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := &stepped{spy: newSpy()}
		service := newService(t, store, apikeys.Config{MaxPerAccount: -1})
		check := useKeys(t, service, store.spy, 1300)
		time.Sleep(time.Minute + 212*time.Millisecond) // in the pause after the ninth step
		began := time.Now()
		service.Close()
		check()
		steps := len(store.times())
		if took := time.Since(began); steps < 20 || took != time.Duration(steps-9)*5*time.Millisecond {
			t.Errorf("Close took %v for %d steps", took, steps)
		}
	})
}

// After two consecutive failures, the service does not call the store for a minute, and all
// unwritten uses are pending again. If a single step fails, the other steps are written without
// delay.
func TestUses_StepsFail_PausesForAMinute(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		var log bytes.Buffer
		store := &stepped{spy: newSpy()}
		service := newService(t, store, apikeys.Config{MaxPerAccount: -1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		check := useKeys(t, service, store.spy, 1300)
		store.fail(errors.New("no space left on device"))
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if n := len(store.times()); n != 2 {
			t.Errorf("%d steps of a write failed", n)
		}
		if n := bytes.Count(log.Bytes(), []byte("\n")); n != 1 || !bytes.Contains(log.Bytes(), []byte("keys=1300 ")) {
			t.Errorf("logged %q", &log)
		}
		store.fail(nil)
		time.Sleep(2 * time.Minute)
		check()
	})
}

func TestLastUseIsNeverSetBack(t *testing.T) {
	service, clock := newClocked(t)
	key, token := create(t, service, time.Time{})
	for _, offset := range []time.Duration{time.Hour, 0, -time.Hour, 59 * time.Minute} {
		clock.Set(noon.Add(offset))
		accepted(t, service, token.Reveal())
		if at := lastUse(t, service, key.ID); at != noon.Add(time.Hour) {
			t.Errorf("used at %+v: last use %v", offset, at)
		}
	}
	service.Close()
	if at := lastUse(t, service, key.ID); at != noon.Add(time.Hour) {
		t.Errorf("after Close: last use %v", at)
	}
}

// The last use of a key includes uses that are being written.
func TestLastUse_DuringWrite_IsShown(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store := newGated()
		service := newService(t, store, apikeys.Config{})
		key, token := create(t, service, time.Time{})
		accepted(t, service, token.Reveal())
		used := lastUse(t, service, key.ID)
		<-store.entered
		if at := lastUse(t, service, key.ID); at != used {
			t.Errorf("during the write the last use is %v, was %v", at, used)
		}
		close(store.open)
		synctest.Wait()
		if at := lastUse(t, service, key.ID); at != used {
			t.Errorf("after the write the last use is %v, was %v", at, used)
		}
	})
}
