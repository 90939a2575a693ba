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

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// A diary records the calls of an Observer.
type diary struct {
	mu       sync.Mutex
	attempts []observe.Attempt
	failing  []note
	off      []note
	others   []audit.Entry
}

type note struct {
	audit.Entry
	at time.Time
}

func (d *diary) observer() observe.Observer {
	return observe.Observer{
		Attempted: func(a observe.Attempt) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.attempts = append(d.attempts, a)
		},
		Changed: func(n audit.Entry) {
			d.mu.Lock()
			defer d.mu.Unlock()
			switch n.Action {
			case audit.WebhookFailing:
				d.failing = append(d.failing, note{n, time.Now()})
			case audit.WebhookOff:
				d.off = append(d.off, note{n, time.Now()})
			default:
				d.others = append(d.others, n)
			}
		},
	}
}

func (d *diary) told() (failing, off []note) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]note(nil), d.failing...), append([]note(nil), d.off...)
}

// restart stops the service and starts another one with the same store.
func (b *bubble) restart(stop func(), config webhooks.Config) (stopAgain func()) {
	b.Helper()
	stop()
	b.service = b.newService(b.store, config)
	return b.start()
}

const day = 24 * time.Hour

// A webhook whose attempts have all failed for five days is disabled. The host is warned after
// half that time. Both are reported once, even across restarts.
func TestFailing_ForFiveDays_WarnsThenDisables(t *testing.T) {
	diary := &diary{}
	config := webhooks.Config{Observe: diary.observer(), Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Minute}}}
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
			if warned != (len(b.logs.Lines("level=WARN", "will be disabled", webhook.ID)) == 1) ||
				turnedOff != (len(b.logs.Lines("level=WARN", "disabled: all its attempts have failed", webhook.ID)) == 1) {
				t.Fatalf("after %v logged %q", time.Since(begun), b.logs.Lines("webhook disabled"))
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
			if late := told.at.Sub(begun) - told.after; late < 0 || late > time.Hour || told.Target.ID != webhook.ID {
				t.Errorf("told %v too late: %+v", late, told)
			}
		}
		if n := failing[0]; !n.Since.Equal(begun) || !n.Until.Equal(begun.Add(5*day)) {
			t.Errorf("warned of %+v", n)
		}
		if n := off[0]; n.Reason != string(webhooks.OffFailing) || n.At.Sub(begun) < 5*day || n.At.After(n.at) {
			t.Errorf("told of %+v", n)
		}
		// After the webhook is enabled again, it has another five days.
		if _, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Active: new(true)}); err != nil {
			t.Fatal(err)
		}
		b.publish()
		time.Sleep(2 * day)
		if failing, off := diary.told(); len(failing) != 1 || len(off) != 1 {
			t.Errorf("two days after it was turned on again: warned %d times, off %d times", len(failing), len(off))
		}
	})
}

// After one success, the five days begin again.
func TestFailing_OneSuccess_StartsOver(t *testing.T) {
	var up atomic.Bool
	handler := func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusNotFound)
		}
	}
	diary := &diary{}
	inBubble(t, webhooks.Config{Observe: diary.observer(), Retry: webhooks.RetryPolicy{DisableAfter: 4 * day, Delays: []time.Duration{}}}, handler, func(b *bubble) {
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

// Without a limit, the webhook is never disabled.
func TestFailing_NoLimit_NeverDisables(t *testing.T) {
	diary := &diary{}
	inBubble(t, webhooks.Config{Observe: diary.observer(), Retry: webhooks.RetryPolicy{DisableAfter: -1}}, status(http.StatusNotFound), func(b *bubble) {
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

// Elapsed time decides, not the number of attempts: a webhook that failed twice and then gets no
// more events is still reported, and disabled on time. A single event that fails repeatedly does
// not disable it.
func TestFailing_QuietWebhook_IsDisabledByTime(t *testing.T) {
	for events, want := range map[int]int{1: 0, 2: 1, 3: 1} {
		t.Run(fmt.Sprint(events, " events"), func(t *testing.T) {
			diary := &diary{}
			inBubble(t, webhooks.Config{Observe: diary.observer()}, status(http.StatusInternalServerError), func(b *bubble) {
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

// A failure after a quiet week does not disable the webhook at once. The host is warned first, and
// one success within the next half day is enough to keep the webhook enabled.
func TestFailing_OneFailureAfterQuietWeek_DisablesNothing(t *testing.T) {
	for name, succeeds := range map[string]bool{"it goes on failing": false, "it succeeds in between": true} {
		t.Run(name, func(t *testing.T) {
			var up atomic.Bool
			handler := func(w http.ResponseWriter, _ *http.Request) {
				if !up.Load() {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}
			diary := &diary{}
			inBubble(t, webhooks.Config{Observe: diary.observer(), Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}}, handler, func(b *bubble) {
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

// wavering is a store whose webhooks recover at the moment when the service decides about them.
type wavering struct {
	driver.WebhookStore
	judged int
}

func (w *wavering) FailingWebhooks(ctx context.Context, since time.Time, page driver.ListQuery) ([]webhooks.Webhook, error) {
	list, err := w.WebhookStore.FailingWebhooks(ctx, since, page)
	for _, webhook := range list {
		w.judged++
		if _, err := w.WebhookStore.UpdateWebhook(ctx, webhook.Account, webhook.ID, func(w *webhooks.Webhook, _ *audit.Entry) error {
			w.EndFailing()
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return list, err
}

// A webhook that has changed since it was read is neither reported nor disabled.
func TestFailing_WebhookChangedMeanwhile_IsLeftAlone(t *testing.T) {
	diary := &diary{}
	inBubble(t, webhooks.Config{}, status(http.StatusInternalServerError), func(b *bubble) {
		store := &wavering{WebhookStore: b.store}
		b.service = b.newService(store, webhooks.Config{Observe: diary.observer(), Retry: webhooks.RetryPolicy{Delays: []time.Duration{}}})
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

// A 410 disables a webhook once and is reported once.
func TestGone_IsReportedOnce(t *testing.T) {
	diary := &diary{}
	handler := func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(roundTrip)
		w.WriteHeader(http.StatusGone)
	}
	inBubble(t, webhooks.Config{Observe: diary.observer()}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		b.publishMany(10)
		b.start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if failing, off := diary.told(); len(failing) != 0 || len(off) != 1 || off[0].Reason != string(webhooks.OffGone) || off[0].Target.ID != webhook.ID {
			t.Errorf("told %+v and %+v", failing, off)
		}
		if len(b.hits.of("a")) != 2 || len(b.logs.Lines("410 Gone")) != 1 {
			t.Errorf("%d requests, logged %q", len(b.hits.of("a")), b.logs.Lines("410 Gone"))
		}
	})
}

// Each attempt is reported to the host after it was recorded.
func TestObserver_EachAttempt_IsReported(t *testing.T) {
	diary := &diary{}
	inBubble(t, webhooks.Config{Observe: diary.observer(), Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Minute, time.Minute}}}, failing(2), func(b *bubble) {
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
			a := recorded[i]
			want := observe.Attempt{
				Account: account, WebhookID: webhook.ID, EventID: event, EventType: "balance.low", Receiver: got.Receiver,
				Number: a.Number, StartedAt: got.StartedAt, Duration: a.Duration, Status: a.Status, Class: string(a.Class), Error: a.Error,
				Result: []observe.Result{observe.Retry, observe.Retry, observe.Delivered}[i], EventTimestamp: got.EventTimestamp,
			}
			if got != want || !got.StartedAt.Equal(a.StartedAt) || !strings.HasPrefix(webhook.URL, got.Receiver+"/") {
				t.Errorf("told %+v, want %+v", got, want)
			}
		}
	})
}

// A panic of an Observer function affects nothing else, and its value is not logged.
func TestObserver_Panics_AffectsNothingElse(t *testing.T) {
	observer := observe.Observer{
		Published: func(context.Context, observe.Publication) { panic("SENTINEL") },
		Attempted: func(observe.Attempt) { panic("SENTINEL") },
		Changed:   func(audit.Entry) { panic(fmt.Errorf("SENTINEL")) },
	}
	inBubble(t, webhooks.Config{Observe: observer}, status(http.StatusGone), func(b *bubble) {
		b.subscribe("a")
		b.start()
		event := b.publish()
		time.Sleep(time.Minute)
		b.wantState(event, webhooks.Dead, 1)
		// One panic is logged for each of four calls: created, published, attempted and turned off.
		if lines := b.logs.Lines("level=ERROR", "panicked"); len(lines) != 4 || strings.Contains(b.logs.String(), "SENTINEL") {
			t.Errorf("logged:\n%s", b.logs)
		}
	})
}
