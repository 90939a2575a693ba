package webhooks_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/webhooks"
)

// A storm has many hanging webhooks and one healthy webhook.
type storm struct {
	*bubble
	hanging, accounts int
	well              string // account of the healthy webhook
	hangs             atomic.Bool
}

func newStorm(t *testing.T, hanging, accounts int, well string) *storm {
	b := &bubble{T: t, store: newFlaky(), logs: &testlog.Book{}}
	s := &storm{bubble: b, hanging: hanging, accounts: accounts, well: well}
	serve := b.serve(func(http.ResponseWriter, *http.Request) {})
	b.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasPrefix(address, "slow") && s.hangs.Load() {
			<-ctx.Done() // costs less than a receiver that hangs
			return nil, ctx.Err()
		}
		return serve(ctx, network, address)
	}
	s.restart()
	return s
}

func (s *storm) account(i int) string { return fmt.Sprint("hanging", i%s.accounts) }

// restart creates another service with the same store.
func (s *storm) restart() {
	s.service = newService(s, s.store, s.config())
	s.service.DialThrough(s.dial)
}

func (*storm) config() webhooks.Config {
	return webhooks.Config{MaxPerAccount: -1, Retry: webhooks.RetryPolicy{Delays: []time.Duration{500 * time.Hour}}, Logger: (&testlog.Book{}).Logger()}
}

// publishAll publishes events for all hanging webhooks and then, before any time passes, an event
// for the healthy webhook. It returns the ID of the last event.
func (s *storm) publishAll() (well string) {
	for i := range s.accounts {
		s.publishFor(s.account(i))
	}
	return s.publishFor(s.well)
}

// arrives returns the time from since until the event arrives at the healthy webhook.
func (s *storm) arrives(event string, since time.Time) time.Duration {
	s.Helper()
	time.Sleep(15 * time.Second)
	for _, hit := range s.hits.of("fast") {
		if hit.id == event {
			return hit.at.Sub(since)
		}
	}
	s.Errorf("nothing arrived within 15 s")
	return 0
}

// crowd makes a storm smaller under the race detector, but still larger than the number of slots,
// and skips storms that differ only in size. Without the detector it keeps the full size.
func crowd(t *testing.T, hanging, accounts *int) {
	if !testbubble.Raced {
		return
	}
	if *hanging > 3000 {
		t.Skip("only larger: runs without the race detector")
	}
	*hanging, *accounts = min(*hanging, 1200), min(*accounts, 1200)
}

// Even if thousands of webhooks hang, a healthy webhook gets its events soon: after the process
// starts, when all others begin to hang at once, and after an idle time. If each account has one
// webhook, only the stored health shows which webhook is healthy.
func TestHealthyWebhook_ManyOthersHang_IsServedSoon(t *testing.T) {
	const soon = 500 * time.Millisecond
	for _, test := range []struct {
		hanging, accounts int
		well              string // account of the healthy webhook
		proven            bool
		cold              time.Duration // maximum wait at the start
	}{
		{3000, 30, "its own", false, soon},
		{10_000, 100, "its own", false, soon},
		{10_000, 100, "hanging7", true, soon},
		{3000, 3000, "its own", false, 2 * time.Second},
		{10_000, 10_000, "its own", true, soon},
		{10_000, 10_000, "its own", false, 5 * time.Second},
	} {
		name := fmt.Sprintf("%d in %d accounts, %s, proven %v", test.hanging, test.accounts, test.well, test.proven)
		t.Run(name, func(t *testing.T) {
			crowd(t, &test.hanging, &test.accounts)
			testbubble.Run(t, func(t *testing.T) {
				s := newStorm(t, test.hanging, test.accounts, test.well)
				s.hangs.Store(true)
				if test.proven {
					s.subscribeFor(test.well, "fast")
					stop := s.start()
					s.publishFor(test.well)
					time.Sleep(time.Second)
					stop()
				}
				for i := range test.hanging {
					s.subscribeFor(s.account(i), fmt.Sprint("slow", i))
				}
				if !test.proven {
					s.subscribeFor(test.well, "fast")
				}
				check := func(when string, event string, since time.Time, most time.Duration) {
					t.Helper()
					if waited := s.arrives(event, since); waited > most {
						t.Errorf("%s: it waited for %v, want at most %v", when, waited, most)
					}
				}

				s.restart()
				event := s.publishAll()
				time.Sleep(time.Minute)
				begun := time.Now()
				stop := s.start()
				check("cold", event, begun, test.cold)

				begun = time.Now()
				check("warm, as they hang", s.publishAll(), begun, soon)
				time.Sleep(10 * time.Minute) // all pending deliveries have been attempted
				begun = time.Now()
				check("after idle minutes", s.publishAll(), begun, soon)

				// The next process knows from the store which webhooks hang.
				stop()
				s.restart()
				event = s.publishAll()
				begun = time.Now()
				stop = s.start()
				check("cold again", event, begun, soon)
				stop()
			})
		})
	}
}

// If healthy receivers all begin to hang at once, they delay neither a receiver of another
// account nor the process.
func TestAllButOneHang_DelaysNoOtherAccount(t *testing.T) {
	for _, test := range []struct {
		hanging, accounts int
		most              time.Duration
	}{
		{3000, 30, 500 * time.Millisecond},
		{10_000, 100, 500 * time.Millisecond},
		{3000, 3000, 500 * time.Millisecond},
		{10_000, 10_000, 1500 * time.Millisecond}, // nothing distinguishes the healthy webhook
	} {
		t.Run(fmt.Sprintf("%d in %d accounts", test.hanging, test.accounts), func(t *testing.T) {
			crowd(t, &test.hanging, &test.accounts)
			testbubble.Run(t, func(t *testing.T) {
				s := newStorm(t, test.hanging, test.accounts, "its own")
				for i := range test.hanging {
					s.subscribeFor(s.account(i), fmt.Sprint("slow", i))
				}
				s.subscribeFor(s.well, "fast")
				stop := s.start()
				s.publishAll()
				time.Sleep(time.Minute)
				s.hangs.Store(true)
				begun := time.Now()
				if waited := s.arrives(s.publishAll(), begun); waited > test.most {
					t.Errorf("warm: it waited for %v, want at most %v", waited, test.most)
				}
				stop()
			})
		})
	}
}
