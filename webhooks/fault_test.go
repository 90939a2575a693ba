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

const pausing = "no webhook can be reached from here"

// While this host is out of descriptors, memory, ports or network, or its name server
// is gone, no delivery loses an attempt for it and no webhook begins to fail; deliveries
// pause, one line is logged, and all of it ends with the outage. So it is in a service
// that has reached its receivers before, and in one that never has.
func TestAnOutageOfTheHost(t *testing.T) {
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
						stop() // and no connection is kept
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
					if lines := b.logs.lines("level=ERROR", pausing); len(lines) != 1 || len(b.logs.lines("level=ERROR")) != 1 {
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

// One customer's dead name server, or an address that there is no way to, beside a
// hundred healthy webhooks, is that customer's: it loses attempts, and nobody else
// waits, whether they are sent to all the time or now and then.
func TestOneReceiverThatCannotBeReached(t *testing.T) {
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
					b.publish() // the first may find that nobody was reached yet
					time.Sleep(time.Minute)
					began := len(b.logs.lines(pausing))
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
					if n := len(b.logs.lines(pausing)) - began; n > 0 {
						t.Errorf("logged %d times that deliveries pause", n)
					}
				})
			})
		}
	}
}

// After this host has run out of something, webhooks that are down do not keep those
// that are well from showing that it can make connections again.
func TestManyThatAreDownDoNotProlongAnOutageOfTheHost(t *testing.T) {
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
		time.Sleep(10 * time.Minute) // they are down by now
		out.Store(true)
		time.Sleep(2 * time.Minute) // no connection is kept
		event := b.publish()
		time.Sleep(time.Minute)
		out.Store(false)
		time.Sleep(time.Minute)
		b.wantState(event, webhooks.Delivered, 1)
	})
}

// While it is being found out whether a failure is this host's, a deletion does not wait
// for that, and is not taken for an answer.
func TestADeletionWhileThereIsDoubt(t *testing.T) {
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
		if lines := b.logs.lines(pausing); len(lines) > 0 {
			t.Errorf("logged %q", lines)
		}
	})
}
