package outbound

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// A piped is a connection whose end tells whether it is open.
type piped struct {
	*conn
	end net.Conn
}

func newPiped(address string) piped {
	ours, theirs := net.Pipe()
	transport := newTransport(ours)
	return piped{newConn(address, transport, transport), theirs}
}

func (p piped) isOpen() bool {
	_ = p.end.SetReadDeadline(time.Now().Add(-time.Second))
	_, err := p.end.Read(make([]byte, 1))
	return err != io.EOF
}

// A pool does what a plain list does that has what was used last at its end.
func TestPool(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 5
		pool := pool{max: most}
		defer pool.close()
		var all, kept, taken []piped
		refused := "" // the address of the last new connection that was not kept
		addresses := rapid.SampledFrom([]string{"a:443", "b:443", "c:443"})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				one := newPiped(addresses.Draw(t, "address"))
				all = append(all, one)
				full := len(kept)+len(taken) == most
				admitted := one.address == refused
				var evicted *conn
				pool.random = func(n int) int {
					i := rapid.IntRange(0, n-1).Draw(t, "random")
					if full && !admitted {
						admitted = i == 0
					} else {
						evicted = pool.idle[i]
					}
					return i
				}
				pool.put(one.conn)
				kept = slices.DeleteFunc(kept, func(p piped) bool { return p.conn == evicted })
				switch {
				case !full, evicted != nil:
					kept = append(kept, one)
				case len(kept) > 0:
					refused = one.address
				}
				if full && admitted && one.address == refused {
					refused = ""
				}
			},
			"put back": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip("none is taken")
				}
				pool.random = nil
				pool.put(taken[0].conn)
				kept, taken = append(kept, taken[0]), taken[1:]
			},
			"drop": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip("none is taken")
				}
				pool.drop(taken[0].conn)
				taken = taken[1:]
			},
			"take": func(t *rapid.T) {
				address := addresses.Draw(t, "address")
				got := pool.take(address, time.Now().Add(time.Minute))
				var want *conn
				for i, one := range slices.Backward(kept) {
					if one.address == address {
						want, kept, taken = one.conn, slices.Delete(kept, i, i+1), append(taken, one)
						break
					}
				}
				if got != want {
					t.Fatalf("another connection was taken, or none: %v", got)
				}
			},
			"expire": func(t *rapid.T) {
				n := rapid.IntRange(0, len(kept)).Draw(t, "expired")
				for _, one := range kept[:n] {
					one.since = one.since.Add(-idleTimeout)
				}
				pool.sweep()
				kept = kept[n:]
			},
			"release": func(t *rapid.T) {
				n := (len(kept) + 7) / 8
				if pool.release() != (n > 0) {
					t.Fatalf("%d were to be released", n)
				}
				kept = kept[n:]
			},
			"close": func(*rapid.T) {
				pool.close()
				kept = nil
			},
			"": func(t *rapid.T) {
				var got []string
				for c := pool.oldest; c != nil; c = c.newer {
					got = append(got, c.address)
				}
				var want []string
				for _, one := range kept {
					want = append(want, one.address)
				}
				if diff := cmp.Diff(want, got); diff != "" || pool.size() != len(kept) || pool.taken != len(taken) {
					t.Fatalf("%d are kept and %d taken, want %d and %d: %s", pool.size(), pool.taken, len(kept), len(taken), diff)
				}
				for _, one := range all {
					isOpen := slices.Contains(kept, one) || slices.Contains(taken, one)
					if one.isOpen() != isOpen {
						t.Fatalf("to %s: open is %v, want %v", one.address, one.isOpen(), isOpen)
					}
				}
			},
		})
	})
}

// However many give back connections at a time, no more are open than may be kept.
func TestIdleConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	const most, each, goroutines = 100, 500, 8
	pool := pool{max: most}
	defer pool.close()
	ends := make([][]piped, goroutines)
	var group sync.WaitGroup
	for g := range goroutines {
		group.Go(func() {
			for i := range each {
				address := fmt.Sprint("host-", (g*31+i)%300, ":443")
				if c := pool.take(address, time.Now().Add(time.Minute)); c != nil {
					pool.put(c)
				}
				one := newPiped(address)
				ends[g] = append(ends[g], one)
				pool.put(one.conn)
			}
		})
	}
	group.Wait()
	open := 0
	for _, one := range slices.Concat(ends...) {
		if one.isOpen() {
			open++
		}
	}
	if pool.size() != most || open != most {
		t.Errorf("%d are kept and %d open, want %d", pool.size(), open, most)
	}
	for range most {
		if address := pool.newest.address; pool.take(address, time.Now().Add(time.Minute)) == nil {
			t.Fatalf("%s is kept, and cannot be taken", address)
		}
	}
	if pool.size() != 0 || len(pool.top) != 0 || pool.oldest != nil {
		t.Errorf("%d are left, of %d addresses", pool.size(), len(pool.top))
	}
}

// A burst of events to a host that is new takes a connection or two, also if the pool is full.
func TestPool_BurstToNewHostWhileFull_TakesTwoConnectionsAtMost(t *testing.T) {
	t.Parallel()
	const places = 100
	pool := pool{max: places}
	defer pool.close()
	for i := range places {
		pool.put(newPiped(fmt.Sprint(i)).conn)
	}
	for burst := range 100 {
		made, address := 0, fmt.Sprint("burst-", burst)
		for range 50 {
			c := pool.take(address, time.Now().Add(time.Minute))
			if c == nil {
				c = newPiped(address).conn
				made++
			}
			pool.put(c)
		}
		if made > 2 {
			t.Errorf("50 events took %d connections, want 2 at most", made)
		}
	}
}

// Events go to one host after the other, 64 at a time, and there are more hosts than
// connections are kept. What is kept is used: least-recently-used eviction would keep just those
// that are not needed before they are evicted.
func TestPool_MoreHostsThanPlaces_KeptConnectionsAreUsed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		hosts int
		least float64 // part of the requests
	}{{1_000, 1}, {1_200, 0.75}, {2_000, 0.35}, {4_000, 0.15}} {
		const places, rounds, atATime = 1_000, 30, 64
		numbers := rand.New(rand.NewPCG(1, 2))
		pool := pool{max: places, random: numbers.IntN}
		defer pool.close()
		var underWay []*conn
		used, requests := 0, 0
		for round := range rounds {
			for host := range test.hosts {
				if len(underWay) == atATime {
					pool.put(underWay[0])
					underWay = underWay[1:]
				}
				c := pool.take(fmt.Sprint(host), time.Now().Add(time.Minute))
				if counts := round >= rounds/2; counts {
					if requests++; c != nil {
						used++
					}
				}
				if c == nil {
					c = newPiped(fmt.Sprint(host)).conn
				}
				underWay = append(underWay, c)
			}
		}
		if part := float64(used) / float64(requests); part < test.least {
			t.Errorf("%d hosts with %d places: %.2f of the requests used a kept connection, want at least %v", test.hosts, places, part, test.least)
		}
	}
}
