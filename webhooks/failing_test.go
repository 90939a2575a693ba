package webhooks_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// A diary collects what hooks tell.
type diary struct {
	mu       sync.Mutex
	attempts []webhooks.AttemptInfo
	failing  []note
	off      []note
}

type note struct {
	webhook webhooks.Webhook
	since   time.Time
	reason  webhooks.OffReason
	at      time.Time
}

func (d *diary) hooks() webhooks.Hooks {
	return webhooks.Hooks{
		Attempt: func(info webhooks.AttemptInfo) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.attempts = append(d.attempts, info)
		},
		Failing: func(webhook webhooks.Webhook, since time.Time) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.failing = append(d.failing, note{webhook: webhook, since: since, at: time.Now()})
		},
		Off: func(webhook webhooks.Webhook, reason webhooks.OffReason) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.off = append(d.off, note{webhook: webhook, reason: reason, at: time.Now()})
		},
	}
}

func (d *diary) told() (failing, off []note) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]note(nil), d.failing...), append([]note(nil), d.off...)
}

// restart makes the bubble's service anew, on the same store.
func (b *bubble) restart(stop func(), config webhooks.Config) (stopAgain func()) {
	b.Helper()
	stop()
	b.service = b.newService(b.store, config)
	return b.start()
}

const day = 24 * time.Hour

// A webhook whose attempts have all failed for five days is turned off, and the
// host is warned after half that time; each is told once, restarts or not.
func TestAWebhookThatFailsForDays(t *testing.T) {
	diary := &diary{}
	config := webhooks.Config{Hooks: diary.hooks(), Retries: []time.Duration{time.Minute}}
	inBubble(t, config, status(http.StatusInternalServerError), func(b *bubble) {
		webhook := b.subscribe("a")
		stop := b.start()
		synctest.Wait()
		b.publish()
		begun := time.Now()
		for hour := range 7 * 24 {
			if hour%12 == 11 {
				stop = b.restart(stop, config)
			}
			b.publishMany(2)
			time.Sleep(time.Hour)
			got, err := b.service.Get(b.Context(), account, webhook.ID)
			if err != nil {
				t.Fatal(err)
			}
			failing, off := diary.told()
			warned, turnedOff := time.Since(begun) >= 5*day/2+time.Hour, time.Since(begun) >= 5*day+time.Hour
			if turnedOff == got.Active || turnedOff != (got.OffReason == webhooks.OffFailing) || warned != !got.WarnedAt.IsZero() ||
				warned != (len(failing) == 1) || turnedOff != (len(off) == 1) {
				t.Fatalf("after %v: warned %d times, off %d times, %+v", time.Since(begun), len(failing), len(off), got)
			}
			if warned != (len(b.logs.lines("level=WARN", "will be turned off", webhook.ID)) == 1) ||
				turnedOff != (len(b.logs.lines("level=WARN", "turned off: its attempts have all failed", webhook.ID)) == 1) {
				t.Fatalf("after %v logged %q", time.Since(begun), b.logs.lines("turned off"))
			}
			want := begun.Add(5 * day)
			if turnedOff {
				want = time.Time{}
			}
			if stats, err := b.service.WebhookStats(b.Context(), account, webhook.ID); err != nil || !stats.TurnsOffAt.Equal(want) {
				t.Fatalf("after %v: turns off at %v, want %v: %v", time.Since(begun), stats.TurnsOffAt, want, err)
			}
		}
		failing, off := diary.told()
		for _, told := range []struct {
			note
			after time.Duration
		}{{failing[0], 5 * day / 2}, {off[0], 5 * day}} {
			if late := told.at.Sub(begun) - told.after; late < 0 || late > time.Hour || told.webhook.ID != webhook.ID {
				t.Errorf("told %v too late: %+v", late, told)
			}
		}
		if w := failing[0].webhook; !w.Active || w.WarnedAt.IsZero() || !failing[0].since.Equal(begun) {
			t.Errorf("warned of %+v, failing since %v", w, failing[0].since)
		}
		if w := off[0].webhook; w.Active || w.OffAt.Sub(begun) < 5*day || w.OffAt.After(off[0].at) || w.OffReason != webhooks.OffFailing || off[0].reason != webhooks.OffFailing {
			t.Errorf("told of %+v, turned off for %q", w, off[0].reason)
		}
		// Turned on again it has five days again.
		if _, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Active: ptr(true)}); err != nil {
			t.Fatal(err)
		}
		b.publish()
		time.Sleep(2 * day)
		if failing, off := diary.told(); len(failing) != 1 || len(off) != 1 {
			t.Errorf("two days after it was turned on again: warned %d times, off %d times", len(failing), len(off))
		}
	})
}

// One success in between, and the days begin anew.
func TestASuccessEndsTheFailing(t *testing.T) {
	var up atomic.Bool
	handler := func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusNotFound)
		}
	}
	diary := &diary{}
	inBubble(t, webhooks.Config{Hooks: diary.hooks(), FailingLimit: 4 * day, Retries: []time.Duration{}}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		fail := func(d time.Duration) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Hour) {
				b.publishMany(2)
			}
		}
		for range 2 {
			fail(4*day - 3*time.Hour)
			up.Store(true)
			fail(2 * time.Hour)
			up.Store(false)
		}
		failing, off := diary.told()
		if len(failing) != 2 || len(off) != 0 {
			t.Errorf("warned %d times, off %d times", len(failing), len(off))
		}
		if got, err := b.service.Get(b.Context(), account, webhook.ID); err != nil || !got.Active || !got.FailingSince.IsZero() || !got.WarnedAt.IsZero() {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// Without a limit it goes on for ever.
func TestNoFailingLimit(t *testing.T) {
	diary := &diary{}
	inBubble(t, webhooks.Config{Hooks: diary.hooks(), FailingLimit: -1}, status(http.StatusNotFound), func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		for range 20 {
			b.publish()
			time.Sleep(day)
		}
		failing, off := diary.told()
		if got, err := b.service.Get(b.Context(), account, webhook.ID); err != nil || !got.Active || len(failing)+len(off) > 0 {
			t.Errorf("warned %d times, off %d times: %+v, %v", len(failing), len(off), got, err)
		}
	})
}

// A webhook is judged by the clock: one that failed twice and gets nothing any more is
// warned of and turned off in time. One event alone, however often it fails, does not
// turn it off.
func TestAQuietWebhookThatFails(t *testing.T) {
	for events, want := range map[int]int{1: 0, 2: 1, 3: 1} {
		t.Run(fmt.Sprint(events, " events"), func(t *testing.T) {
			diary := &diary{}
			inBubble(t, webhooks.Config{Hooks: diary.hooks()}, status(http.StatusInternalServerError), func(b *bubble) {
				webhook := b.subscribe("a")
				b.start()
				begun := time.Now()
				b.publishMany(events)
				for time.Since(begun) < 6*day {
					time.Sleep(time.Hour)
					failing, off := diary.told()
					warned, turnedOff := want*btoi(time.Since(begun) >= 5*day/2+time.Hour), want*btoi(time.Since(begun) >= 5*day+time.Hour)
					if len(failing) != warned || len(off) != turnedOff {
						t.Fatalf("after %v: warned %d times, off %d times", time.Since(begun), len(failing), len(off))
					}
				}
				if got, err := b.service.Get(b.Context(), account, webhook.ID); err != nil || got.Active == (want == 1) {
					t.Errorf("%+v, %v", got, err)
				}
			})
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// One failure after a quiet week turns nothing off: the host is warned then, and has
// half a day, in which one success is enough.
func TestOneFailureAfterAQuietWeek(t *testing.T) {
	for name, succeeds := range map[string]bool{"it goes on failing": false, "it succeeds in between": true} {
		t.Run(name, func(t *testing.T) {
			var up atomic.Bool
			handler := func(w http.ResponseWriter, _ *http.Request) {
				if !up.Load() {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}
			diary := &diary{}
			inBubble(t, webhooks.Config{Hooks: diary.hooks(), Retries: []time.Duration{}}, handler, func(b *bubble) {
				webhook := b.subscribe("a")
				b.start()
				b.publish()
				time.Sleep(7 * day)
				b.publish()
				time.Sleep(11 * time.Hour)
				if failing, off := diary.told(); len(failing) != 1 || len(off) != 0 {
					t.Fatalf("11 hours after the second failure: warned %d times, off %d times", len(failing), len(off))
				}
				up.Store(succeeds)
				b.publish()
				time.Sleep(2 * time.Hour)
				_, off := diary.told()
				got, err := b.service.Get(b.Context(), account, webhook.ID)
				if err != nil || got.Active != succeeds || (len(off) == 0) != succeeds || got.FailingSince.IsZero() != succeeds {
					t.Errorf("off %d times: %+v, %v", len(off), got, err)
				}
			})
		})
	}
}

// A wavering store has webhooks that do well again at the moment when they are judged.
type wavering struct {
	webhooks.Store
	judged int
}

func (w *wavering) FailingWebhooks(ctx context.Context, since time.Time, page webhooks.Page) ([]webhooks.Webhook, error) {
	list, err := w.Store.FailingWebhooks(ctx, since, page)
	for _, webhook := range list {
		w.judged++
		if _, err := w.Store.UpdateWebhook(ctx, webhook.Account, webhook.ID, func(w *webhooks.Webhook, _ *notices.Notice) error {
			w.EndFailing()
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return list, err
}

// Only what is still as it was judged is warned of and turned off.
func TestASuccessWhileItIsJudged(t *testing.T) {
	diary := &diary{}
	inBubble(t, webhooks.Config{}, status(http.StatusInternalServerError), func(b *bubble) {
		store := &wavering{Store: b.store}
		b.service = b.newService(store, webhooks.Config{Hooks: diary.hooks(), Retries: []time.Duration{}})
		webhook := b.subscribe("a")
		b.start()
		for range 20 {
			b.publishMany(2)
			time.Sleep(day)
		}
		failing, off := diary.told()
		if got, err := b.service.Get(b.Context(), account, webhook.ID); err != nil || !got.Active || !got.WarnedAt.IsZero() || len(failing)+len(off) > 0 || store.judged == 0 {
			t.Errorf("judged %d times, warned %d times, off %d times: %+v, %v", store.judged, len(failing), len(off), got, err)
		}
	})
}

// A webhook that answers 410 is turned off once, too, and the host is told.
func TestGoneIsToldOnce(t *testing.T) {
	diary := &diary{}
	handler := func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(roundTrip)
		w.WriteHeader(http.StatusGone)
	}
	inBubble(t, webhooks.Config{Hooks: diary.hooks()}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		b.publishMany(10)
		b.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if failing, off := diary.told(); len(failing) != 0 || len(off) != 1 || off[0].reason != webhooks.OffGone || off[0].webhook.ID != webhook.ID || off[0].webhook.Active {
			t.Errorf("told %+v and %+v", failing, off)
		}
		if len(b.hits.of("a")) != 2 || len(b.logs.lines("410 Gone")) != 1 {
			t.Errorf("%d requests, logged %q", len(b.hits.of("a")), b.logs.lines("410 Gone"))
		}
	})
}

// The host is told of each attempt, once it is recorded.
func TestAttemptsAreTold(t *testing.T) {
	diary := &diary{}
	inBubble(t, webhooks.Config{Hooks: diary.hooks(), Retries: []time.Duration{time.Minute, time.Minute}}, failing(2), func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		event := b.publish()
		time.Sleep(time.Hour)
		synctest.Wait()
		recorded := b.delivery(event).Attempts
		if len(diary.attempts) != 3 || len(recorded) != 3 {
			t.Fatalf("told of %d attempts of %d", len(diary.attempts), len(recorded))
		}
		for i, got := range diary.attempts {
			want := webhooks.AttemptInfo{
				Account: account, WebhookID: webhook.ID, EventID: event, Type: webhooks.TypeBalanceLow, Attempt: recorded[i],
				State: []webhooks.DeliveryState{webhooks.Pending, webhooks.Pending, webhooks.Delivered}[i],
			}
			got.Attempt.StartedAt = got.Attempt.StartedAt.UTC()
			if got != want {
				t.Errorf("told %+v, want %+v", got, want)
			}
		}
	})
}

// What hooks get is theirs: the store's is not changed with it.
func TestHooksMayChangeWhatTheyGet(t *testing.T) {
	spoil := func(webhook webhooks.Webhook) { webhook.Events[0], webhook.PastEvents[0] = "spoilt", "spoilt" }
	hooks := webhooks.Hooks{
		Failing: func(webhook webhooks.Webhook, _ time.Time) { spoil(webhook) },
		Off:     func(webhook webhooks.Webhook, _ webhooks.OffReason) { spoil(webhook) },
	}
	inBubble(t, webhooks.Config{Hooks: hooks, Retries: []time.Duration{day, day, day, day, day, day}}, status(http.StatusInternalServerError), func(b *bubble) {
		webhook := b.subscribe("a")
		for _, events := range [][]webhooks.EventType{{webhooks.TypeFilesExpiring}, onBalance} {
			if _, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Events: events}); err != nil {
				t.Fatal(err)
			}
		}
		b.publishMany(2)
		b.start()
		time.Sleep(7 * day)
		synctest.Wait()
		got, err := b.service.Get(b.Context(), account, webhook.ID)
		if err != nil || got.Active || got.Events[0] != onBalance[0] {
			t.Errorf("got %+v, %v", got, err)
		}
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		for _, settlement := range b.store.settlements {
			if w := settlement.Task.Webhook; w.Events[0] != onBalance[0] || w.PastEvents[0] != webhooks.TypeFilesExpiring {
				t.Errorf("the task's webhook is for %q, and was for %q", w.Events, w.PastEvents)
			}
		}
	})
}

// A hook that panics harms nobody, and says nothing of what it panicked with.
func TestAHookThatPanics(t *testing.T) {
	hooks := webhooks.Hooks{
		Attempt: func(webhooks.AttemptInfo) { panic("SENTINEL") },
		Off:     func(webhooks.Webhook, webhooks.OffReason) { panic(fmt.Errorf("SENTINEL")) },
	}
	inBubble(t, webhooks.Config{Hooks: hooks}, status(http.StatusGone), func(b *bubble) {
		b.subscribe("a")
		b.start()
		event := b.publish()
		time.Sleep(time.Minute)
		b.wantState(event, webhooks.Dead, 1)
		if lines := b.logs.lines("level=ERROR", "panicked"); len(lines) != 2 || strings.Contains(b.logs.String(), "SENTINEL") {
			t.Errorf("logged:\n%s", b.logs)
		}
	})
}
