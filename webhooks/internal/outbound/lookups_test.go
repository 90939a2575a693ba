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

// A nameServer answers, or not, names that tell how: "dead…" never, "slow…" after a
// second.
type nameServer struct{ running, most, calls atomic.Int64 }

const deadFor = 20 * time.Second // until a lookup of a dead name ends

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
		time.Sleep(deadFor) // after the end of ctx, too: getaddrinfo does not heed it
		return nil, &net.DNSError{Err: "i/o timeout", Name: name, IsTimeout: true}
	case strings.HasPrefix(name, "slow"):
		time.Sleep(time.Second)
	}
	return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil
}

// look looks up a name for the owner, as an attempt does, and returns how long that
// took.
func look(l *lookups, owner, name string) (time.Duration, error) {
	return lookAs(l, caller{owner: owner, standing: Untried}, name)
}

func lookAs(l *lookups, by caller, name string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	begun := time.Now()
	_, err := l.of(ctx, by, name)
	return time.Since(begun), err
}

// Many names of a dead name server, looked up again and again, do not slow down those of
// other owners, and what cannot be cancelled is bounded.
func TestDeadNameServersHoldUpNobody(t *testing.T) {
	for name, test := range map[string]struct{ accounts, names int }{
		"one account": {1, 500}, "many accounts": {100, 10},
	} {
		t.Run(name, func(t *testing.T) {
			testbubble.Run(t, func(t *testing.T) {
				var server nameServer
				l := &lookups{resolve: server.resolve}
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
									t.Error("a dead name was found")
								}
							}
						}()
					}
				}
				for i := range 300 {
					time.Sleep(100 * time.Millisecond)
					if took, err := look(l, "healthy", fmt.Sprint("w", i%100)); err != nil || took > 0 {
						t.Fatalf("a name that is known took %v: %v", took, err)
					}
					if test.accounts > 1 {
						continue
					}
					if took, err := look(l, "another", fmt.Sprint("new", i)); err != nil || took > 0 {
						t.Fatalf("a new name of another account took %v: %v", took, err)
					}
				}
				if most := server.most.Load(); most > int64(maxLookups[Proven]) {
					t.Errorf("%d lookups at a time", most)
				}
				time.Sleep(10 * time.Minute)
				l.mu.Lock()
				defer l.mu.Unlock()
				if len(l.underWay)+len(l.waiting)+len(l.owners) > 0 || l.running != [Proven + 1]int{} {
					t.Errorf("left: %d under way, %d waiting, %d owners, %v running", len(l.underWay), len(l.waiting), len(l.owners), l.running)
				}
			})
		})
	}
}

// A name is looked up once for all who wait for it, and again for those who come after.
func TestLookupsAreShared(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		var server nameServer
		l := &lookups{resolve: server.resolve}
		for range 50 {
			go func() {
				if took, err := look(l, "a", "slow"); err != nil || took != time.Second {
					t.Errorf("%v after %v", err, took)
				}
			}()
		}
		time.Sleep(time.Minute)
		if n := server.calls.Load(); n != 1 {
			t.Errorf("looked up %d times", n)
		}
		if _, err := look(l, "a", "slow"); err != nil || server.calls.Load() != 2 {
			t.Errorf("%v; looked up %d times", err, server.calls.Load())
		}
	})
}

// A lookup that is not waited for to its end says why.
func TestLookupsThatAreLeft(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		l := &lookups{resolve: new(nameServer).resolve}
		if took, err := look(l, "a", "dead"); classify(err) != errTimeout || suspect(err) != likelyOurs || took != 15*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := l.of(ctx, caller{owner: "a"}, "dead"); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		for i := range maxLookupsOfOne {
			go look(l, "b", fmt.Sprint("dead", i))
		}
		synctest.Wait()
		if took, err := look(l, "b", "dead and too many"); suspect(err) != busy || took != 15*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		time.Sleep(time.Minute)
	})
}

// flood makes the accounts look up dead names, each again and again, until the returned
// function is called, which waits for the last ones.
func flood(l *lookups, accounts, names int, standing Standing) (stop func()) {
	var stopped atomic.Bool
	for a := range accounts {
		for n := range names {
			go func() {
				for !stopped.Load() {
					_, _ = lookAs(l, caller{fmt.Sprint("a", a), standing}, fmt.Sprint("dead", a, "-", n))
				}
			}()
		}
	}
	return func() {
		stopped.Store(true)
		time.Sleep(2 * longestLookup)
	}
}

func TestLookups_DeadNameServersOfTenAccounts_NewNamesOfOthersDoNotWait(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		l := &lookups{resolve: new(nameServer).resolve}
		stop := flood(l, 10, 100, Untried)
		defer stop()
		for i := range 600 {
			time.Sleep(100 * time.Millisecond)
			if took, err := look(l, fmt.Sprint("new", i), fmt.Sprint("new", i)); err != nil || took > 0 {
				t.Fatalf("after %d lookups a new name took %v, %v; want none to wait", i, took, err)
			}
		}
	})
}

// After a restart the process knows no name. What failed before is no reason to wait for
// other names, however many accounts it is of.
func TestLookups_ManyFailingReceiversAfterARestart_OthersDoNotWait(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		l := &lookups{resolve: new(nameServer).resolve}
		stop := flood(l, 300, 10, Failing)
		defer stop()
		for i := range 600 {
			time.Sleep(100 * time.Millisecond)
			for _, standing := range []Standing{Untried, Proven} {
				name := fmt.Sprint("w", i, "-", standing)
				if took, err := lookAs(l, caller{name, standing}, name); err != nil || took > 0 {
					t.Fatalf("standing %d: the lookup took %v, %v; want none to wait", standing, took, err)
				}
			}
		}
	})
}

// If all room for new names is taken by those of many accounts, a proven receiver's name
// does not wait, and another account's new name waits for one of their lookups to end.
func TestLookups_DeadNameServersOfManyAccounts_WaitIsBounded(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		l := &lookups{resolve: new(nameServer).resolve}
		stop := flood(l, 100, 10, Untried)
		defer stop()
		for i := range 60 {
			time.Sleep(time.Second)
			name := fmt.Sprint("proven", i)
			if took, err := lookAs(l, caller{name, Proven}, name); err != nil || took > 0 {
				t.Errorf("a proven receiver's name took %v, %v; want none to wait", took, err)
			}
		}
		for i := range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			begun, name := time.Now(), fmt.Sprint("new", i)
			if _, err := l.of(ctx, caller{name, Untried}, name); err != nil || time.Since(begun) > deadFor {
				t.Errorf("another account's new name took %v, %v; want at most %v", time.Since(begun), err, deadFor)
			}
			cancel()
		}
	})
}

// An account whose lookups hang does not make others wait that look up the same name.
func TestLookups_NameThatWaitsForAnotherAccount_IsLookedUpForTheOneThatMay(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		l := &lookups{resolve: new(nameServer).resolve}
		stop := flood(l, 1, 100, Untried)
		defer stop()
		time.Sleep(time.Second)
		go look(l, "a0", "shared")
		time.Sleep(time.Second)
		if took, err := look(l, "another", "shared"); err != nil || took > 0 {
			t.Errorf("the name took %v, %v; want no wait behind another account's lookups", took, err)
		}
	})
}
