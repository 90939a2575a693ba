package audit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/store/memory"
)

// A host records delivered audit entries as "target:id".
type host struct {
	mu        sync.Mutex
	delivered []string
	fails     func(ctx context.Context, n audit.Entry) error
}

func (h *host) notify(ctx context.Context, n audit.Entry) error {
	h.mu.Lock()
	fails := h.fails
	h.mu.Unlock()
	if fails != nil {
		if err := fails(ctx, n); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.delivered = append(h.delivered, n.Target.ID+":"+n.ID)
	return nil
}

func (h *host) drain() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	delivered := h.delivered
	h.delivered = nil
	return delivered
}

func (h *host) failing(fails func(ctx context.Context, n audit.Entry) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails = fails
}

var silent = slog.New(slog.NewTextHandler(io.Discard, nil))

// run delivers the store's audit entries to h until stop is called.
func run(t *testing.T, store audit.Store, h *host) (stop func()) {
	t.Helper()
	s, err := audit.New(store, audit.Config{Notify: h.notify, Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.Run(ctx)
	}()
	return func() {
		cancel()
		<-over
	}
}

func pending(account, target string, number int) audit.Entry {
	return audit.Entry{
		ID: fmt.Sprint("aud_", number), Account: account, At: time.Now(), Action: audit.KeyChanged,
		Target: audit.Target{Kind: audit.TargetKey, ID: target}, Pending: true,
	}
}

func add(t *testing.T, store audit.Store, list ...audit.Entry) {
	t.Helper()
	if _, err := store.AddAuditEntries(t.Context(), list); err != nil {
		t.Fatal(err)
	}
}

func wantDelivered(t *testing.T, h *host, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, h.drain()); diff != "" {
		t.Errorf("delivered audit entries (-want +got):\n%s", diff)
	}
}

// Pending audit entries are delivered once and in order, including entries stored while no Run is
// active.
func TestRun_PendingAuditEntries_AreDeliveredOnceInOrder(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, h := memory.New(), &host{}
		silent := pending("acct", "a", 3)
		silent.Pending = false
		add(t, store, pending("acct", "a", 2), pending("acct", "a", 1), silent)
		stop := run(t, store, h)
		time.Sleep(time.Second / 2)
		wantDelivered(t, h, "a:aud_2", "a:aud_1")
		add(t, store, pending("acct", "b", 4))
		time.Sleep(time.Minute)
		wantDelivered(t, h, "b:aud_4")
		stop()
		add(t, store, pending("acct", "b", 5))
		time.Sleep(24 * time.Hour)
		stop = run(t, store, h)
		time.Sleep(time.Second / 2)
		wantDelivered(t, h, "b:aud_5")
		stop()
	})
}

// A failed audit entry holds up only its target. It is retried with growing pauses, and before the
// target's later audit entries.
func TestRun_NotifyFailsForOneTarget_HoldsUpOnlyThatTarget(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		for name, fails := range map[string]func(){"error": func() {}, "panic": func() { panic("secret") }, "Goexit": runtime.Goexit} {
			store, h := memory.New(), &host{}
			var tried []time.Time
			begun := time.Now()
			h.failing(func(_ context.Context, n audit.Entry) error {
				if n.Account == "acct" && n.Target.ID == "bad" {
					tried = append(tried, time.Now())
					fails()
					return errors.New("not now")
				}
				return nil
			})
			stop := run(t, store, h)
			add(t, store, pending("acct", "bad", 1), pending("acct", "good", 2), pending("acct", "bad", 3), pending("other", "bad", 4))
			time.Sleep(90 * time.Second)
			synctest.Wait()
			wantDelivered(t, h, "good:aud_2", "bad:aud_4")
			if len(tried) < 6 || len(tried) > 7 {
				t.Errorf("%s: %d attempts within %v, want 6 or 7", name, len(tried), time.Since(begun))
			}
			h.failing(nil)
			time.Sleep(10 * time.Minute)
			wantDelivered(t, h, "bad:aud_1", "bad:aud_3")
			stop()
		}
	})
}

// The context of a call ends after a timeout and when Run ends. Run abandons a call that ignores
// its context.
func TestRun_NotifyHangs_TimesOutOrIsAbandoned(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, h := memory.New(), &host{}
		h.failing(func(ctx context.Context, n audit.Entry) error {
			if n.Target.ID == "bad" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		add(t, store, pending("acct", "bad", 1), pending("acct", "good", 2))
		stop := run(t, store, h)
		time.Sleep(15 * time.Second)
		wantDelivered(t, h, "good:aud_2")
		stop()

		ever := make(chan struct{})
		h.failing(func(context.Context, audit.Entry) error { <-ever; return nil })
		stop = run(t, store, h)
		time.Sleep(time.Hour)
		begun := time.Now()
		stop()
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("Run returned after %v, want at most 2s", took)
		}
		close(ever)
		synctest.Wait()
	})
}

// The second service takes over when the first one stops or hangs.
func TestRun_TwoServices_OnlyLeaseHolderDelivers(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, a, b := memory.New(), &host{}, &host{}
		stopA := run(t, store, a)
		synctest.Wait()
		stopB := run(t, store, b)
		for i := range 20 {
			add(t, store, pending("acct", "key", i))
			time.Sleep(7 * time.Second)
		}
		if delivered := a.drain(); len(delivered) != 20 {
			t.Errorf("first service delivered %d audit entries, want 20", len(delivered))
		}
		wantDelivered(t, b)
		stopA()
		add(t, store, pending("acct", "key", 20))
		time.Sleep(15 * time.Second)
		wantDelivered(t, b, "key:aud_20")

		stopA = run(t, store, a)
		ever := make(chan struct{})
		b.failing(func(context.Context, audit.Entry) error { <-ever; return nil })
		add(t, store, pending("acct", "key", 21))
		time.Sleep(5 * time.Minute)
		wantDelivered(t, a, "key:aud_21")
		stopB()
		stopA()
		close(ever)
		synctest.Wait()
	})
}

func TestRun_EveryCallFails_LimitsCallRate(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, h := memory.New(), &host{}
		calls := 0
		h.failing(func(context.Context, audit.Entry) error { calls++; return errors.New("down") })
		for i := range 1000 {
			add(t, store, pending(fmt.Sprint("acct", i), "key", i))
		}
		stop := run(t, store, h)
		time.Sleep(10*time.Second + time.Second/2)
		synctest.Wait()
		if calls < 100 || calls > 16*11 {
			t.Errorf("%d calls within 10 s, want 100 to 176", calls)
		}
		h.failing(nil)
		time.Sleep(20 * time.Minute)
		if delivered := h.drain(); len(delivered) != 1000 {
			t.Errorf("%d audit entries delivered, want 1,000", len(delivered))
		}
		stop()
	})
}

// The values come from requests and hosts: they must be bounded and safe to display.
func TestOf_ActorAndRequest_AreBoundedAndCleaned(t *testing.T) {
	ctx := audit.WithRequest(audit.WithActor(t.Context(), audit.Actor{Kind: audit.ActorPerson, ID: "a\x00\u0085\xff" + strings.Repeat("é", 100)}), "id with space", strings.Repeat("1", 65))
	got := audit.Of(ctx, "acct", audit.KeyCreated, audit.Target{})
	if got.RequestID != "" || got.ClientAddress != "" || len(got.Actor.ID) > 128 || !strings.HasPrefix(got.Actor.ID, "a\ufffd\ufffd\ufffdéé") {
		t.Errorf("audit entry = %+v, want cleaned fields", got)
	}
	got = audit.Of(audit.WithRequest(t.Context(), "req-1", "2001:db8::1"), "acct", audit.KeyCreated, audit.Target{})
	want := audit.Entry{Account: "acct", Action: audit.KeyCreated, Actor: audit.Actor{Kind: audit.ActorHost}, RequestID: "req-1", ClientAddress: "2001:db8::1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("audit entry (-want +got):\n%s", diff)
	}
}
