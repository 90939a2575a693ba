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

// piped is a connection together with its remote end.
type piped struct {
	*conn
	end net.Conn
}

func newPiped(address string) piped {
	local, remote := net.Pipe()
	transport := newTransport(pipe{local})
	return piped{newConn(address, transport, transport), remote}
}

func (p piped) isOpen() bool {
	_ = p.end.SetReadDeadline(time.Now().Add(-time.Second))
	_, err := p.end.Read(make([]byte, 1))
	return err != io.EOF
}

// A pool must behave like a plain list of connections ordered by last use.
func TestPool_RandomOperations_MatchModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 5
		pool := pool{max: most, random: rand.IntN}
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
					t.Skip("no connection is taken")
				}
				pool.random = rand.IntN
				pool.put(taken[0].conn)
				kept, taken = append(kept, taken[0]), taken[1:]
			},
			"drop": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip("no connection is taken")
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
					t.Fatalf("take(%s) = %p, want %p", address, got, want)
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
					t.Fatalf("release() = %v, want %v", n == 0, n > 0)
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
					t.Fatalf("%d idle and %d taken connections, want %d and %d (-want +got):\n%s", pool.size(), pool.taken, len(kept), len(taken), diff)
				}
				for _, one := range all {
					isOpen := slices.Contains(kept, one) || slices.Contains(taken, one)
					if one.isOpen() != isOpen {
						t.Fatalf("connection to %s: open = %v, want %v", one.address, one.isOpen(), isOpen)
					}
				}
			},
		})
	})
}

func TestPool_ConcurrentPuts_KeepAtMostMax(t *testing.T) {
	t.Parallel()
	const most, each, goroutines = 100, 500, 8
	pool := pool{max: most, random: rand.IntN}
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
		t.Errorf("%d idle and %d open connections, want %d", pool.size(), open, most)
	}
	for range most {
		if address := pool.newest.address; pool.take(address, time.Now().Add(time.Minute)) == nil {
			t.Fatalf("take(%s) = nil with an idle connection, want it", address)
		}
	}
	if pool.size() != 0 || len(pool.top) != 0 || pool.oldest != nil {
		t.Errorf("%d idle connections to %d addresses after all were taken, want none", pool.size(), len(pool.top))
	}
}

func TestPool_BurstToNewHostWhileFull_MakesAtMostTwoConnections(t *testing.T) {
	t.Parallel()
	const places = 100
	pool := pool{max: places, random: rand.IntN}
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
			t.Errorf("50 events made %d connections, want at most 2", made)
		}
	}
}

// Events go to one host after the other, 64 at a time, with more hosts than places. The pool must
// reuse connections: least-recently-used eviction would reuse none here.
func TestPool_MoreHostsThanPlaces_ReusesConnections(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		hosts int
		least float64 // minimum share of the requests that reuse a connection
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
		if share := float64(used) / float64(requests); share < test.least {
			t.Errorf("%d hosts, %d places: %.2f of the requests reused a connection, want at least %v", test.hosts, places, share, test.least)
		}
	}
}
