package outbound

import (
	"fmt"
	"io"
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
		var all, kept []piped
		addresses := rapid.SampledFrom([]string{"a:443", "b:443", "c:443"})
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				one := newPiped(addresses.Draw(t, "address"))
				pool.put(one.conn)
				all, kept = append(all, one), append(kept, one)
				kept = kept[max(len(kept)-most, 0):]
			},
			"take": func(t *rapid.T) {
				address := addresses.Draw(t, "address")
				got := pool.take(address, time.Now().Add(time.Minute))
				var want *conn
				for i, one := range slices.Backward(kept) {
					if one.address == address {
						want, kept = one.conn, slices.Delete(kept, i, i+1)
						defer one.close()
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
				if diff := cmp.Diff(want, got); diff != "" || pool.count != len(kept) {
					t.Fatalf("%d are kept: %s", pool.count, diff)
				}
				for _, one := range all {
					isKept := slices.Contains(kept, one)
					if taken := one.since.IsZero() && !isKept; !taken && one.isOpen() != isKept {
						t.Fatalf("to %s: open is %v, kept is %v", one.address, one.isOpen(), isKept)
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
	if pool.count != most || open != most {
		t.Errorf("%d are kept and %d open, want %d", pool.count, open, most)
	}
	for range most {
		if address := pool.newest.address; pool.take(address, time.Now().Add(time.Minute)) == nil {
			t.Fatalf("%s is kept, and cannot be taken", address)
		}
	}
	if pool.count != 0 || len(pool.top) != 0 || pool.oldest != nil {
		t.Errorf("%d are left, of %d addresses", pool.count, len(pool.top))
	}
}
