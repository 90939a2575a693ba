package webhooks_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

func dialError(call string, err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError(call, err)}
}

func lookupError(name string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "i/o timeout", Name: name, IsTimeout: true}}
}

const pausing = "no webhook is reachable from this host"

// While this host lacks descriptors, memory, ports, network or its name server, no delivery uses
// up an attempt and no webhook counts as failing. Deliveries pause, one line is logged, and
// everything resumes after the outage. This holds whether or not the service has reached its
// receivers before.
func TestHostOutage_UsesUpNoAttempt(t *testing.T) {
	for name, fails := range map[string]func(address string) error{
		"descriptors":            func(string) error { return dialError("socket", syscall.EMFILE) },
		"descriptors of all":     func(string) error { return dialError("socket", syscall.ENFILE) },
		"buffers":                func(string) error { return dialError("connect", syscall.ENOBUFS) },
		"descriptors to look up": func(string) error { return &net.DNSError{Err: "dial udp 192.0.2.1:53: socket: too many open files"} },
		"ports":                  func(string) error { return dialError("connect", syscall.EADDRNOTAVAIL) },
		"network":                func(string) error { return dialError("connect", syscall.ENETUNREACH) },
		"name server":            lookupError,
		"network of the name server": func(string) error {
			return &net.DNSError{Err: "dial udp 192.0.2.1:53: connect: network is unreachable"}
		},
	} {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, reached before: %v", name, before), func(t *testing.T) {
				inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
					var down atomic.Bool
					var dials atomic.Int64
					b.service.DialThrough(func(ctx context.Context, network, address string) (net.Conn, error) {
						if down.Load() {
							dials.Add(1)
							return nil, fails(address)
						}
						return b.dial(ctx, network, address)
					})
					var list []webhooks.Webhook
					for i := range 20 {
						list = append(list, b.subscribe(fmt.Sprint("w", i)))
					}
					if before {
						stop := b.start()
						b.publish()
						synctest.Wait()
						stop() // so that no connection is kept
					}
					down.Store(true)
					b.start()
					var events []string
					for range 10 {
						events = append(events, b.publish())
						time.Sleep(time.Minute)
					}
					for _, w := range list {
						if got, err := b.service.Get(b.Context(), account, w.ID); err != nil || !got.FailingSince.IsZero() {
							t.Errorf("%s is failing since %v, %v", w.ID, got.FailingSince, err)
						}
					}
					if lines := b.logs.Lines("level=ERROR", pausing); len(lines) != 1 || len(b.logs.Lines("level=ERROR")) != 1 {
						t.Errorf("logged %q", lines)
					}
					if n := dials.Load(); n > 1000 {
						t.Errorf("%d connections were tried in ten minutes", n)
					}
					down.Store(false)
					time.Sleep(time.Minute)
					for _, event := range events {
						for _, got := range deliveries(b, b.service, event) {
							if got.State != webhooks.Delivered || len(got.Attempts) != 1 || got.Attempts[0].Number != 1 {
								t.Fatalf("%+v", got)
							}
						}
					}
					begun := time.Now()
					event := b.publish()
					time.Sleep(time.Second)
					for _, got := range deliveries(b, b.service, event) {
						if got.State != webhooks.Delivered || got.Attempts[0].StartedAt.Sub(begun) > 10*time.Millisecond {
							t.Fatalf("after the outage: %+v", got)
						}
					}
				})
			})
		}
	}
}

// If one customer's name server is dead, or its address is unroutable, only that customer is
// affected. Its deliveries use up attempts. The hundred healthy webhooks of other accounts do not
// wait, whether their events are frequent or rare.
func TestUnreachableReceiver_AffectsOnlyItsAccount(t *testing.T) {
	for name, fails := range map[string]func(ctx context.Context, address string) error{
		"dead name server": func(ctx context.Context, address string) error {
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
			return lookupError(address)
		},
		"name server that is said to be dead at once": func(_ context.Context, address string) error { return lookupError(address) },
		"no way to it":                func(context.Context, string) error { return dialError("connect", syscall.ENETUNREACH) },
		"no address to reach it from": func(context.Context, string) error { return dialError("connect", syscall.EADDRNOTAVAIL) },
		"broken name server": func(_ context.Context, address string) error {
			return &net.DNSError{Err: "server misbehaving", Name: address, IsTemporary: true}
		},
	} {
		for _, pause := range []time.Duration{time.Second, 10 * time.Minute} {
			t.Run(fmt.Sprintf("%s, every %v", name, pause), func(t *testing.T) {
				inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
					b.service.DialThrough(func(ctx context.Context, network, address string) (net.Conn, error) {
						if strings.HasPrefix(address, "dead.") {
							return nil, fails(ctx, address)
						}
						return b.dial(ctx, network, address)
					})
					dead := b.subscribe("dead")
					for i := range 100 {
						b.subscribe(fmt.Sprint("w", i))
					}
					b.start()
					b.publish() // the first attempt may begin before any receiver was reached
					time.Sleep(time.Minute)
					began := len(b.logs.Lines(pausing))
					for range 5 {
						begun := time.Now()
						event := b.publish()
						time.Sleep(pause)
						for _, got := range deliveries(b, b.service, event) {
							if got.WebhookID == dead.ID {
								continue
							}
							if got.State != webhooks.Delivered || got.Attempts[0].StartedAt.Sub(begun) > 10*time.Millisecond {
								t.Fatalf("a healthy one waits: %+v", got)
							}
						}
					}
					time.Sleep(time.Hour)
					if got, err := b.service.Get(b.Context(), account, dead.ID); err != nil || got.FailingSince.IsZero() {
						t.Errorf("it is not failing: %+v, %v", got, err)
					}
					if n := len(b.logs.Lines(pausing)) - began; n > 0 {
						t.Errorf("logged %d times that deliveries pause", n)
					}
				})
			})
		}
	}
}

// After this host has run out of a resource, webhooks that are down must not prevent healthy ones
// from showing that connections are possible again.
func TestHostOutage_ManyWebhooksDown_IsNotProlonged(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		var out atomic.Bool
		b.service.DialThrough(func(ctx context.Context, network, address string) (net.Conn, error) {
			switch {
			case out.Load():
				return nil, dialError("socket", syscall.EMFILE)
			case strings.HasPrefix(address, "dead"):
				return nil, dialError("connect", syscall.ECONNREFUSED)
			}
			return b.dial(ctx, network, address)
		})
		for i := range 200 {
			b.subscribeFor(fmt.Sprint("dead", i), fmt.Sprint("dead", i))
		}
		b.subscribe("well")
		b.start()
		for range 30 {
			for i := range 200 {
				b.publishFor(fmt.Sprint("dead", i))
			}
		}
		b.publish()
		time.Sleep(10 * time.Minute) // the webhooks are down by now
		out.Store(true)
		time.Sleep(2 * time.Minute) // no connection is kept
		event := b.publish()
		time.Sleep(time.Minute)
		out.Store(false)
		time.Sleep(time.Minute)
		b.wantState(event, webhooks.Delivered, 1)
	})
}

// While the service finds out whether this host caused a failure, a deletion must not wait for the
// result, and must not count as a response.
func TestDelete_OutageSuspected_DoesNotWait(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		var silent atomic.Bool
		b.service.DialThrough(func(ctx context.Context, network, address string) (net.Conn, error) {
			switch {
			case strings.HasPrefix(address, "nowhere"):
				return nil, dialError("connect", syscall.ENETUNREACH)
			case silent.Load():
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return b.dial(ctx, network, address)
		})
		for i := range 3 {
			b.subscribe(fmt.Sprint("reached", i))
		}
		b.start()
		b.publish()
		time.Sleep(2 * time.Minute) // no connection is kept
		silent.Store(true)
		var list []webhooks.Webhook
		for i := range 10 {
			list = append(list, b.subscribeFor("other", fmt.Sprint("nowhere", i)))
		}
		b.publishFor("other")
		time.Sleep(10 * time.Millisecond)
		for _, w := range list {
			begun := time.Now()
			if err := b.service.Delete(b.Context(), w.Account, w.ID, webhooks.DeleteParams{}); err != nil || time.Since(begun) > 10*time.Millisecond {
				t.Errorf("deleting %s took %v: %v", w.URL, time.Since(begun), err)
			}
		}
		time.Sleep(time.Second)
		if lines := b.logs.Lines(pausing); len(lines) > 0 {
			t.Errorf("logged %q", lines)
		}
	})
}

// The receivers of one customer cannot be reached. Even if the last connections were to them, the
// deliveries of others must not pause, and the customer's failures must use up attempts. To find
// the cause, the service sends nothing to other receivers, and keeps their connections. This holds
// even if the others get no events for an hour, so that no response shows that the network is up.
func TestOutage_ReceiversOfOneAccountFail_OthersGoOn(t *testing.T) {
	for name, fails := range map[string]func(address string) error{
		"network":     func(string) error { return dialError("connect", syscall.ENETUNREACH) },
		"name server": lookupError,
		"broken name server": func(address string) error {
			return &net.DNSError{Err: "server misbehaving", Name: address, IsTemporary: true}
		},
	} {
		for _, busy := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, busy: %v", name, busy), func(t *testing.T) {
				const others = 20
				inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
					var down atomic.Bool
					var dials atomic.Int64
					b.service.DialThrough(func(ctx context.Context, network, address string) (net.Conn, error) {
						if !strings.HasPrefix(address, "hers") {
							dials.Add(1)
						} else if down.Load() {
							return nil, fails(address)
						}
						return b.dial(ctx, network, address)
					})
					for i := range others {
						b.subscribeFor(fmt.Sprint("other", i), fmt.Sprint("w", i))
					}
					publish := func() {
						for i := range others {
							b.publishFor(fmt.Sprint("other", i))
						}
					}
					var hers []webhooks.Webhook
					for i := range 4 {
						hers = append(hers, b.subscribeFor("her", fmt.Sprint("hers", i)))
					}
					b.start()
					publish()
					time.Sleep(time.Second)
					b.publishFor("her")
					time.Sleep(100 * time.Second) // the customer's connections are closed
					if busy {
						publish()
					} else {
						time.Sleep(time.Hour)
					}
					down.Store(true)
					dials.Store(0)
					for range 300 {
						b.publishFor("her")
						time.Sleep(500 * time.Millisecond)
						if begun := time.Now(); busy {
							publish()
							time.Sleep(time.Millisecond)
							hits := b.hits.of("")
							if hit := hits[len(hits)-others]; hit.at.Before(begun) {
								t.Fatalf("%v after the first failure not all others have got their event", time.Since(begun))
							}
						}
					}
					if lines := b.logs.Lines(pausing); len(lines) > 0 {
						t.Errorf("logged %q, want no pause", lines)
					}
					if n := dials.Load(); n > 0 && !busy {
						t.Errorf("%d connections to others' receivers, want none", n)
					} else if n > others {
						t.Errorf("%d connections to others' receivers, want one to each of %d at most", n, others)
					}
					for _, w := range hers {
						if got, err := b.service.Get(b.Context(), "her", w.ID); err != nil || got.FailingSince.IsZero() {
							t.Errorf("%s is failing since %v, %v; want that its attempts have failed", w.URL, got.FailingSince, err)
						}
					}
				})
			})
		}
	}
}

// If the receivers of all accounts fail and no receiver answers, this host is to blame, and no
// delivery uses up an attempt.
func TestOutage_ReceiversOfAllAccountsFail_NoAttemptIsUsedUp(t *testing.T) {
	for _, accounts := range []int{2, 3, 40} {
		t.Run(fmt.Sprint(accounts, " accounts"), func(t *testing.T) {
			inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
				var down atomic.Bool
				b.service.DialThrough(func(ctx context.Context, network, address string) (net.Conn, error) {
					if down.Load() {
						return nil, dialError("connect", syscall.ENETUNREACH)
					}
					return b.dial(ctx, network, address)
				})
				list := make([]webhooks.Webhook, accounts)
				for i := range list {
					list[i] = b.subscribeFor(fmt.Sprint("a", i), fmt.Sprint("w", i))
				}
				publish := func() {
					for _, w := range list {
						b.publishFor(w.Account)
					}
				}
				b.start()
				publish()
				time.Sleep(2 * time.Minute) // no connection is kept
				down.Store(true)
				for range 60 {
					publish()
					time.Sleep(time.Minute)
				}
				for _, w := range list {
					if got, err := b.service.Get(b.Context(), w.Account, w.ID); err != nil || !got.FailingSince.IsZero() {
						t.Errorf("%s is failing since %v, %v; want that no attempt was used up", w.URL, got.FailingSince, err)
					}
				}
				down.Store(false)
				time.Sleep(time.Minute)
				if got, want := len(b.hits.of("")), 61*accounts; got != want {
					t.Errorf("%d requests, want %d", got, want)
				}
			})
		})
	}
}
