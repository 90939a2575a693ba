package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
)

// A nameServer answers "slow…" names after a second, "dead…" names never, and all others at once.
type nameServer struct{ running, most, calls atomic.Int64 }

const deadFor = 20 * time.Second // duration of a lookup of a dead name

func (n *nameServer) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	n.calls.Add(1)
	defer n.running.Add(-1)
	for now := n.running.Add(1); ; {
		if most := n.most.Load(); now <= most || n.most.CompareAndSwap(most, now) {
			break
		}
	}
	switch {
	case strings.HasPrefix(name, "dead"):
		time.Sleep(deadFor) // even after the end of ctx, as getaddrinfo does
		return nil, &net.DNSError{Err: "i/o timeout", Name: name, IsTimeout: true}
	case strings.HasPrefix(name, "slow"):
		time.Sleep(time.Second)
	}
	return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
}

// look looks up a name for an owner, and returns the time taken.
func look(l *Lookups, owner, name string) (time.Duration, error) {
	return lookAs(l, Caller{owner: owner, standing: Untried}, name)
}

func lookAs(l *Lookups, by Caller, name string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	begun := time.Now()
	_, err := l.Addresses(ctx, by, name)
	return time.Since(begun), err
}

// Repeated lookups of many names on a dead name server do not delay other owners. The number of
// these lookups, which cannot be canceled, is limited.
func TestLookups_DeadNameServer_OtherOwnersDoNotWait(t *testing.T) {
	for name, test := range map[string]struct{ accounts, names int }{
		"one account": {1, 500}, "many accounts": {100, 10},
	} {
		t.Run(name, func(t *testing.T) {
			testbubble.Run(t, func(t *testing.T) {
				var server nameServer
				l := NewLookups(server.resolve)
				for i := range 100 {
					if _, err := look(l, "healthy", fmt.Sprint("w", i)); err != nil {
						t.Fatal(err)
					}
				}
				for a := range test.accounts {
					for n := range test.names {
						go func() {
							for range 5 {
								if _, err := look(l, fmt.Sprint("a", a), fmt.Sprint("dead", a, "-", n)); err == nil {
									t.Error("lookup of a dead name succeeded, want an error")
								}
							}
						}()
					}
				}
				for i := range 300 {
					time.Sleep(100 * time.Millisecond)
					if took, err := look(l, "healthy", fmt.Sprint("w", i%100)); err != nil || took > 0 {
						t.Fatalf("lookup of a known name took %v, error %v; want no wait", took, err)
					}
					if test.accounts > 1 {
						continue
					}
					if took, err := look(l, "another", fmt.Sprint("new", i)); err != nil || took > 0 {
						t.Fatalf("lookup of another account's new name took %v, error %v; want no wait", took, err)
					}
				}
				if most := server.most.Load(); most > int64(maxLookups[Proven]) {
					t.Errorf("%d concurrent lookups, want at most %d", most, maxLookups[Proven])
				}
				time.Sleep(10 * time.Minute)
				l.mu.Lock()
				defer l.mu.Unlock()
				if len(l.byName)+len(l.waiting)+len(l.owners) > 0 || l.running != [Proven + 1]int{} {
					t.Errorf("got %d lookups, %d waiting, %d owners, %v running; want none left", len(l.byName), len(l.waiting), len(l.owners), l.running)
				}
			})
		})
	}
}

func TestLookups_ConcurrentCallersOfOneName_ShareALookup(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		var server nameServer
		l := NewLookups(server.resolve)
		for range 50 {
			go func() {
				if took, err := look(l, "a", "slow"); err != nil || took != time.Second {
					t.Errorf("got error %v after %v, want none after 1s", err, took)
				}
			}()
		}
		time.Sleep(time.Minute)
		if n := server.calls.Load(); n != 1 {
			t.Errorf("50 concurrent callers: %d lookups, want 1", n)
		}
		if _, err := look(l, "a", "slow"); err != nil || server.calls.Load() != 2 {
			t.Errorf("a later caller: error %v, %d lookups; want 2", err, server.calls.Load())
		}
	})
}

func TestLookups_CallerStopsWaiting_ErrorSaysWhy(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		l := NewLookups(new(nameServer).resolve)
		if took, err := look(l, "a", "dead"); classify(err) != errTimeout || suspect(err) != likelyHost || took != 15*time.Second {
			t.Errorf("past the deadline: got %v after %v, want a timeout after 15s", err, took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := l.Addresses(ctx, Caller{owner: "a"}, "dead"); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: got %v, want %v", err, context.Canceled)
		}
		for i := range maxOwnerLookups {
			go look(l, "b", fmt.Sprint("dead", i))
		}
		synctest.Wait()
		if took, err := look(l, "b", "dead and too many"); suspect(err) != clientBusy || took != 15*time.Second {
			t.Errorf("without a free slot: got %v after %v, want %v after 15s", err, took, errCrowded)
		}
		time.Sleep(time.Minute)
	})
}

// flood makes accounts look up dead names repeatedly until stop is called. stop waits for the
// last lookups.
func flood(l *Lookups, accounts, names int, standing Standing) (stop func()) {
	var stopped atomic.Bool
	for a := range accounts {
		for n := range names {
			go func() {
				for !stopped.Load() {
					_, _ = lookAs(l, Caller{fmt.Sprint("a", a), standing}, fmt.Sprint("dead", a, "-", n))
				}
			}()
		}
	}
	return func() {
		stopped.Store(true)
		time.Sleep(2 * lookupTimeout)
	}
}

func TestLookups_DeadNameServersOfTenAccounts_NewNamesOfOthersDoNotWait(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		l := NewLookups(new(nameServer).resolve)
		stop := flood(l, 10, 100, Untried)
		defer stop()
		for i := range 600 {
			time.Sleep(100 * time.Millisecond)
			if took, err := look(l, fmt.Sprint("new", i), fmt.Sprint("new", i)); err != nil || took > 0 {
				t.Fatalf("after %d lookups: lookup of a new name took %v, error %v; want no wait", i, took, err)
			}
		}
	})
}

// After a restart the process has no results of lookups. Receivers that failed earlier must not
// delay other names, regardless of the number of accounts that have such receivers.
func TestLookups_ManyFailingReceiversAfterRestart_OthersDoNotWait(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		l := NewLookups(new(nameServer).resolve)
		stop := flood(l, 300, 10, Failing)
		defer stop()
		for i := range 600 {
			time.Sleep(100 * time.Millisecond)
			for _, standing := range []Standing{Untried, Proven} {
				name := fmt.Sprint("w", i, "-", standing)
				if took, err := lookAs(l, Caller{name, standing}, name); err != nil || took > 0 {
					t.Fatalf("standing %d: lookup took %v, error %v; want no wait", standing, took, err)
				}
			}
		}
	})
}

// Dead names of many accounts fill all slots for new names. Meanwhile, the name of a proven
// receiver must not wait, and a new name of another account must wait only until one lookup ends.
func TestLookups_DeadNameServersOfManyAccounts_WaitIsBounded(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		l := NewLookups(new(nameServer).resolve)
		stop := flood(l, 100, 10, Untried)
		defer stop()
		for i := range 60 {
			time.Sleep(time.Second)
			name := fmt.Sprint("proven", i)
			if took, err := lookAs(l, Caller{name, Proven}, name); err != nil || took > 0 {
				t.Errorf("lookup of a proven receiver's name took %v, error %v; want no wait", took, err)
			}
		}
		for i := range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			begun, name := time.Now(), fmt.Sprint("new", i)
			if _, err := l.Addresses(ctx, Caller{name, Untried}, name); err != nil || time.Since(begun) > deadFor {
				t.Errorf("lookup of another account's new name took %v, error %v; want at most %v", time.Since(begun), err, deadFor)
			}
			cancel()
		}
	})
}

// If an account with hanging lookups waits to look up a name, another account can look up the same
// name without waiting.
func TestLookups_NameWaitsOnBusyAccount_StartsForAnotherAccount(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		l := NewLookups(new(nameServer).resolve)
		stop := flood(l, 1, 100, Untried)
		defer stop()
		time.Sleep(time.Second)
		go look(l, "a0", "shared")
		time.Sleep(time.Second)
		if took, err := look(l, "another", "shared"); err != nil || took > 0 {
			t.Errorf("lookup took %v, error %v; want no wait behind another account's lookups", took, err)
		}
	})
}
