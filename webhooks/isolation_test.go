package webhooks_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// subscribeFor creates a webhook of the account with the given host name.
func (b *bubble) subscribeFor(account, name string) webhooks.Webhook {
	b.Helper()
	webhook, err := b.service.Create(b.Context(), account, webhooks.CreateParams{URL: "https://" + name + ".example.com" + secretPath, Events: onBalance})
	if err != nil {
		b.Fatal(err)
	}
	return webhook
}

func (b *bubble) publishFor(account string) string {
	b.Helper()
	id := b.service.NewEventID()
	if err := b.service.Publish(b.Context(), webhooks.Event{ID: id, Account: account, Data: lowBalance}); err != nil {
		b.Fatal(err)
	}
	return id
}

// latencies returns the time from publication to arrival of each event at a fast host.
func (b *bubble) latencies(published map[string]time.Time) (list []time.Duration) {
	for _, hit := range b.hits.of("") {
		if at, ok := published[hit.id]; ok && strings.HasPrefix(hit.host, "fast") {
			list = append(list, hit.at.Sub(at))
		}
	}
	return list
}

// Hanging webhooks, in any number and with any backlog, do not delay the events of others. With
// enough slots there is no delay at all; otherwise there is a delay only until the service has
// found the hanging webhooks.
func TestHangingWebhooks_AnyNumber_DoNotDelayOthers(t *testing.T) {
	for name, test := range map[string]struct {
		config            webhooks.Config
		accounts          int
		fast, slow        int
		backlog           int           // events published before they hang
		worst, worstLater time.Duration // maximum latency, at first and after 10 s
	}{
		// Most cases scale 1,000 webhooks and the default 1,024 slots down to a tenth.
		"1 of 100, 10,000 pending":        {webhooks.Config{}, 1, 99, 1, 10_000, 0, 0},
		"50 of 1,000":                     {webhooks.Config{Concurrency: webhooks.Concurrency{Total: 102}}, 1, 95, 5, 0, 0, 0},
		"200 of 1,000":                    {webhooks.Config{Concurrency: webhooks.Concurrency{Total: 102}}, 1, 80, 20, 0, 0, 0},
		"200 of 1,000 in many accounts":   {webhooks.Config{Concurrency: webhooks.Concurrency{Total: 102}}, 10, 80, 20, 0, 0, 0},
		"200 of 1,000, 60 slots":          {webhooks.Config{Concurrency: webhooks.Concurrency{Total: 6}}, 1, 80, 20, 0, 500 * time.Millisecond, 0},
		"200 of 1,000, 60 slots, backlog": {webhooks.Config{Concurrency: webhooks.Concurrency{Total: 6, PerAccount: 6}}, 10, 80, 20, 100, 8 * time.Second, 0}, // the usual latency is not known yet
		"all but one":                     {webhooks.Config{Concurrency: webhooks.Concurrency{Total: 100}}, 1, 1, 200, 0, 500 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			hangers := newHangers()
			inBubble(t, test.config, hangers.handle, func(b *bubble) {
				account := func(i int) string { return fmt.Sprint("a", i%test.accounts) }
				for i := range test.slow {
					b.subscribeFor(account(i), fmt.Sprint("slow", i))
				}
				hangers.hang.Store(test.backlog > 0)
				for i := range test.backlog {
					b.publishFor(account(i))
				}
				for i := range test.fast {
					b.subscribeFor(account(i), fmt.Sprint("fast", i))
				}
				b.start()
				published := make(map[string]time.Time)
				feed := func(d time.Duration) {
					for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
						for i := range test.accounts {
							published[b.publishFor(account(i))] = time.Now()
						}
					}
				}
				feed(2 * time.Second)
				hangers.hang.Store(true)
				feed(10 * time.Second)
				check := func(when string, worst time.Duration) {
					synctest.Wait()
					list := b.latencies(published)
					if want := len(published) * test.fast / test.accounts; len(list) != want {
						t.Errorf("%s: %d of %d events arrived", when, len(list), want)
					}
					late := 0
					for _, latency := range list {
						if latency > worst {
							late++
						}
					}
					if late > 0 {
						t.Errorf("%s: %d of %d events came after more than %v", when, late, len(list), worst)
					}
					clear(published)
				}
				check("first", test.worst)
				feed(10 * time.Second)
				check("then", test.worstLater)
				if n := hangers.gauge.current("slow"); n == 0 {
					t.Error("the hanging webhooks get no attempts any more")
				}
			})
		})
	}
}

// If slots are scarce, hanging webhooks hold at most a quarter of them, or half while nothing is
// known about the webhooks. Attempts beyond that share are canceled, which uses up no attempt; the
// other attempts have their full time.
func TestSlots_Scarce_HangingWebhooksHoldAQuarter(t *testing.T) {
	hangers := newHangers()
	hangers.hang.Store(true)
	config := webhooks.Config{Concurrency: webhooks.Concurrency{Total: 40, PerAccount: 40}, Outbound: webhooks.Outbound{Timeout: 10 * time.Second}, Retry: webhooks.RetryPolicy{Delays: []time.Duration{500 * time.Hour}}}
	inBubble(t, config, hangers.handle, func(b *bubble) {
		for i := range 120 {
			b.subscribeFor("others", fmt.Sprint("fast", i))
		}
		b.publishFor("others")
		for i := range 30 {
			b.subscribe(fmt.Sprint("slow", i))
		}
		var ids []string
		for range 50 {
			ids = append(ids, b.publish())
		}
		begun := time.Now()
		b.start()
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if now := hangers.gauge.current("slow"); now < 10 || now > 20 {
			t.Errorf("%d slots are held, want 10 to 20", now)
		}
		cut := len(b.logs.Lines("attempt canceled"))
		if cut == 0 || cut > 30*2 {
			t.Errorf("%d attempts were canceled", cut)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if now := hangers.gauge.current("slow"); now == 0 || now > 10 {
			t.Errorf("%d slots are held, want 1 to 10", now)
		}
		if later := len(b.logs.Lines("attempt canceled")); later != cut {
			t.Errorf("%d more attempts were canceled, with slots to spare", later-cut)
		}
		attempts := 0
		for _, id := range ids {
			for _, delivery := range deliveries(b, b.service, id) {
				for i, attempt := range delivery.Attempts {
					attempts++
					if attempt.Duration != 10*time.Second || attempt.Number != i+1 {
						t.Fatalf("recorded %+v", attempt)
					}
				}
			}
		}
		if under := hangers.gauge.current("slow"); attempts != len(b.hits.of(""))-120-cut-under {
			t.Errorf("%d attempts are recorded of %d requests, with %d canceled and %d in flight", attempts, len(b.hits.of("")), cut, under)
		}
		if least := int(time.Since(begun)/(10*time.Second)) * 5; attempts < least {
			t.Errorf("%d attempts, want at least %d", attempts, least)
		}
	})
}

// The hanging webhooks of an account delay neither its other webhooks nor the webhooks of other
// accounts.
func TestSlots_HangingAccount_LeavesRoomForOthers(t *testing.T) {
	hangers := newHangers()
	hangers.hang.Store(true)
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{PerAccount: 12}}, hangers.handle, func(b *bubble) {
		for i := range 20 {
			b.subscribeFor("bad", fmt.Sprint("slow", i))
		}
		b.subscribeFor("bad", "fast-bad")
		b.subscribeFor("good", "fast-good")
		for range 50 {
			b.publishFor("bad")
		}
		b.start()
		synctest.Wait()
		if now := hangers.gauge.current("slow"); now > 12 {
			t.Errorf("%d slots are held by the account, want at most 12", now)
		}
		time.Sleep(5 * time.Second)
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			published := time.Now()
			bad, good := b.publishFor("bad"), b.publishFor("good")
			synctest.Wait()
			arrived := 0
			for _, hit := range b.hits.of("") {
				if strings.HasPrefix(hit.host, "fast") && (hit.id == bad || hit.id == good) && hit.at.Equal(published) {
					arrived++
				}
			}
			if arrived != 2 {
				t.Fatalf("%d of 2 events arrived at once", arrived)
			}
			if now := hangers.gauge.current("slow"); now < 1 || now > 9 {
				t.Fatalf("%d slots are held by what hangs, want 1 to 9", now)
			}
		}
	})
}

// A slow receiver that succeeds gets events as fast as it can take them, even while others hang.
func TestSlowReceiver_Succeeds_IsServedAtItsPace(t *testing.T) {
	gauge := newGauge()
	handler := func(w http.ResponseWriter, r *http.Request) {
		defer gauge.enter(r.Host)()
		if strings.HasPrefix(r.Host, "slow") {
			<-r.Context().Done()
		}
		sleeping(3*time.Second)(w, r)
	}
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{Total: 100, PerAccount: 100}}, handler, func(b *bubble) {
		for i := range 30 {
			b.subscribeFor("other", fmt.Sprint("slow", i))
			b.publishFor("other")
		}
		b.subscribe("working")
		const events = 600
		var ids []string
		for range events {
			ids = append(ids, b.publish())
		}
		b.start()
		for range 200 {
			b.publishFor("other")
			time.Sleep(time.Second)
		}
		synctest.Wait()
		for _, id := range ids {
			b.wantState(id, webhooks.Delivered, 1)
		}
		if got := gauge.peak("working.example.com"); got < 10 || got > 16 {
			t.Errorf("%d at a time", got)
		}
		if lines := b.logs.Lines("attempt canceled"); len(lines) > 0 {
			t.Errorf("%d attempts were canceled, with slots to spare", len(lines))
		}
	})
}

// A receiver that has stopped hanging is soon served like any other.
func TestHangingReceiver_Recovers_IsServedAgain(t *testing.T) {
	hangers := newHangers()
	inBubble(t, webhooks.Config{Concurrency: webhooks.Concurrency{Total: 40}}, hangers.handle, func(b *bubble) {
		for i := range 30 {
			b.subscribe(fmt.Sprint("slow", i))
		}
		b.start()
		hangers.hang.Store(true)
		for range 100 {
			b.publish()
			time.Sleep(300 * time.Millisecond)
		}
		hangers.hang.Store(false)
		time.Sleep(3 * time.Minute)
		for range 10 {
			time.Sleep(time.Second)
			published := time.Now()
			event := b.publish()
			time.Sleep(10 * time.Millisecond) // many results are recorded together
			for _, delivery := range deliveries(b, b.service, event) {
				if delivery.State != webhooks.Delivered || !delivery.Attempts[0].StartedAt.Equal(published) {
					t.Fatalf("published at %v: %+v", published, delivery)
				}
			}
		}
	})
}
