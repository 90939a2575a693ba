package webhooks_test

import (
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/bolt"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// broken runs test once for each store that can be used in a bubble. The webhook's receiver has
// been down for an hour. events are the webhook's backlog; the first delivery is dead.
func broken(t *testing.T, hangs bool, test func(b *bubble, o *outage, webhook webhooks.Webhook, events []string)) {
	for name, open := range map[string]func(t *testing.T) store.Store{
		"memory": func(*testing.T) store.Store { return memory.New() },
		"bolt": func(t *testing.T) store.Store {
			s, err := bolt.Open(filepath.Join(t.TempDir(), "db"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			testbubble.Run(t, func(t *testing.T) {
				o := &outage{hangs: hangs, gauge: newGauge()}
				b := &bubble{T: t, store: &flaky{Store: open(t)}, logs: &testlog.Book{}}
				b.service = newService(t, b.store, webhooks.Config{MaxPerAccount: -1, Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}, Logger: b.logs.Logger()})
				b.service.DialThrough(b.serve(o.handle))
				webhook := b.subscribe("a")
				var events []string
				for range 300 {
					events = append(events, b.publish())
				}
				stop := b.start()
				defer stop()
				time.Sleep(time.Hour)
				synctest.Wait()
				if b.delivery(events[0]).State != webhooks.Dead || !b.limiterState(webhook).Open {
					t.Fatalf("after an hour: %+v, %+v", b.delivery(events[0]).State, b.limiterState(webhook))
				}
				test(b, o, webhook, events)
			})
		})
	}
}

func (b *bubble) limiterState(webhook webhooks.Webhook) webhooks.LimiterState {
	b.Helper()
	stats, err := b.service.WebhookStats(b.Context(), webhook.Account, webhook.ID)
	if err != nil {
		b.Fatal(err)
	}
	return stats.LimiterState
}

func (b *bubble) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// After a receiver is repaired, each of these user actions must cause a request to it within a
// second, even though the next probe is a minute away, and even while an attempt hangs.
func TestProbe_ReceiverRepaired_SendsWithinASecond(t *testing.T) {
	for name, press := range map[string]func(b *bubble, webhook webhooks.Webhook, events []string) (first string){
		"a test event": func(b *bubble, webhook webhooks.Webhook, _ []string) string {
			test, err := b.service.SendTest(b.Context(), webhook.Account, webhook.ID)
			b.must(err)
			if test.Attempt.Status != http.StatusOK || b.limiterState(webhook).Open {
				b.Errorf("the receiver answered %d, and is said to be down: %v", test.Attempt.Status, b.limiterState(webhook).Open)
			}
			return ""
		},
		"what is dead": func(b *bubble, webhook webhooks.Webhook, events []string) string {
			b.must(b.service.Redeliver(b.Context(), webhook.Account, webhook.ID, events[0]))
			return events[0]
		},
		"what waits behind its backlog": func(b *bubble, webhook webhooks.Webhook, events []string) string {
			last := events[len(events)-1]
			b.must(b.service.Redeliver(b.Context(), webhook.Account, webhook.ID, last))
			return last
		},
		"a recovery": func(b *bubble, webhook webhooks.Webhook, _ []string) string {
			_, err := b.service.Recover(b.Context(), webhook.Account, webhook.ID, webhooks.RecoverParams{})
			b.must(err)
			return ""
		},
		"off and on": func(b *bubble, webhook webhooks.Webhook, _ []string) string {
			for _, active := range []bool{false, true} {
				_, err := b.service.Update(b.Context(), webhook.Account, webhook.ID, webhooks.UpdateParams{Active: &active})
				b.must(err)
			}
			return ""
		},
		"another URL": func(b *bubble, webhook webhooks.Webhook, _ []string) string {
			_, err := b.service.Update(b.Context(), webhook.Account, webhook.ID, webhooks.UpdateParams{URL: new("https://b.example.com" + secretPath)})
			b.must(err)
			return ""
		},
	} {
		for _, hangs := range []bool{false, true} {
			t.Run(map[bool]string{false: "failing, ", true: "hanging, "}[hangs]+name, func(t *testing.T) {
				broken(t, hangs, func(b *bubble, o *outage, webhook webhooks.Webhook, events []string) {
					o.over.Store(true)
					before, at := len(b.hits.of("")), time.Now()
					first := press(b, webhook, events)
					if name == "a test event" {
						before++
					}
					time.Sleep(time.Second - time.Since(at))
					synctest.Wait()
					list := b.hits.of("")[before:]
					if len(list) == 0 || first != "" && list[0].id != first {
						b.Fatalf("%d events came within a second, want at first %s", len(list), first)
					}
					if b.limiterState(webhook).Open {
						b.Error("it is down still")
					}
					time.Sleep(time.Minute)
					if left := backlogOf(b, webhook); left > 0 {
						b.Errorf("%d events are left after a minute", left)
					}
				})
			})
		}
	}
}

func backlogOf(b *bubble, webhook webhooks.Webhook) int {
	b.Helper()
	stats, err := b.service.WebhookStats(b.Context(), webhook.Account, webhook.ID)
	b.must(err)
	return stats.Pending
}

// A receiver that is down gets one requested attempt per second, with only a few in flight at once,
// no matter how many attempts users request. Afterwards the pauses between probes are as before.
func TestProbe_ReceiverDown_IsNotFlooded(t *testing.T) {
	for _, hangs := range []bool{false, true} {
		t.Run(map[bool]string{false: "failing", true: "hanging"}[hangs], func(t *testing.T) {
			broken(t, hangs, func(b *bubble, _ *outage, webhook webhooks.Webhook, events []string) {
				before := len(b.hits.of("a"))
				const seconds = 30
				most := 0
				for i := range seconds * 10 {
					b.must(b.service.Redeliver(b.Context(), webhook.Account, webhook.ID, events[len(events)-1-i%7]))
					if i%3 == 0 {
						_, err := b.service.Update(b.Context(), webhook.Account, webhook.ID, webhooks.UpdateParams{Active: new(true)})
						b.must(err)
					}
					time.Sleep(100 * time.Millisecond)
					most = max(most, b.limiterState(webhook).InFlight)
				}
				list := b.hits.of("a")[before:]
				if len(list) < seconds-5 || len(list) > seconds+5 { // the regular probes are additional
					t.Errorf("%d attempts in %d s", len(list), seconds)
				}
				for i := 1; i < len(list); i++ {
					if gap := list[i].at.Sub(list[i-1].at); gap < 300*time.Millisecond && i > 1 && list[i].at.Sub(list[i-2].at) < 900*time.Millisecond {
						t.Errorf("three attempts within %v", list[i].at.Sub(list[i-2].at))
					}
				}
				if most > 6 {
					t.Errorf("%d attempts under way", most)
				}
				time.Sleep(2 * time.Minute)
				before = len(b.hits.of("a"))
				time.Sleep(10 * time.Minute)
				if n := len(b.hits.of("a")) - before; n > 14 {
					t.Errorf("%d attempts in 10 minutes after that", n)
				}
			})
		})
	}
}

// A receiver that has accepted a test event is trusted even if it has no pending deliveries.
func TestProbe_TestEventSucceeds_EndsPause(t *testing.T) {
	o := &outage{gauge: newGauge()}
	inBubble(t, webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}}, o.handle, func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		for range 10 {
			b.publish()
		}
		time.Sleep(time.Minute)
		if !b.limiterState(webhook).Open || backlogOf(b, webhook) > 0 {
			t.Errorf("after a minute: %+v, %d pending", b.limiterState(webhook), backlogOf(b, webhook))
		}
		o.over.Store(true)
		_, err := b.service.SendTest(b.Context(), webhook.Account, webhook.ID)
		b.must(err)
		time.Sleep(3 * time.Second)
		at, event := time.Now(), b.publish()
		time.Sleep(time.Second)
		list := b.hits.of("a")
		if last := list[len(list)-1]; last.id != event || last.at.Sub(at) > 0 {
			t.Errorf("an event that was published after the test did not come at once")
		}
	})
}
