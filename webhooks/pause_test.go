package webhooks_test

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/webhooks"
)

// pause pauses a webhook until the given time; the zero time ends the pause.
func (b *bubble) pause(webhook webhooks.Webhook, until time.Time) {
	b.Helper()
	got, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{PausedUntil: &until})
	if err != nil || !got.PausedUntil.Equal(until) {
		b.Fatalf("paused until %v, %v; want %v", got.PausedUntil, err, until)
	}
}

// While a webhook is paused, events wait, including resent events. When the pause ends, or is ended
// early, they are sent without any other activity.
func TestPause_EventsWaitForItsEnd(t *testing.T) {
	for name, early := range map[string]bool{"its end": false, "ended early": true} {
		t.Run(name, func(t *testing.T) {
			fail := failing(1)
			inBubble(t, webhooks.Config{}, fail, func(b *bubble) {
				webhook := b.subscribe("a")
				b.start()
				retried, sent := b.publish(), ""
				synctest.Wait()
				sent = b.publish()
				synctest.Wait()
				b.wantState(retried, webhooks.Pending, 1)
				b.wantState(sent, webhooks.Delivered, 1)
				begun := time.Now()
				b.pause(webhook, begun.Add(90*time.Minute))
				b.must(b.service.Redeliver(b.Context(), account, webhook.ID, sent))
				later := b.publish()
				time.Sleep(time.Hour)
				if n := len(b.hits.of("a")); n != 2 {
					t.Errorf("%d requests came during the pause", n-2)
				}
				stats, err := b.service.WebhookStats(b.Context(), account, webhook.ID)
				all, allErr := b.service.Stats(b.Context())
				if err != nil || allErr != nil || stats.Pending != 3 || stats.OldestDue != 0 || all.OldestDue != 0 || all.LongestWait != 0 {
					t.Errorf("3 deliveries wait: %+v, %+v, %v, %v", stats, all, err, allErr)
				}
				want := begun.Add(90 * time.Minute)
				if early {
					want = time.Now()
					b.pause(webhook, time.Time{})
				}
				time.Sleep(time.Until(want) + time.Second)
				b.wantState(retried, webhooks.Delivered, 2)
				b.wantState(sent, webhooks.Delivered, 2)
				b.wantState(later, webhooks.Delivered, 1)
				for _, hit := range b.hits.of("a")[2:] {
					if late := hit.at.Sub(want); late < 0 || late > 10*time.Millisecond {
						t.Errorf("sent %v after the end of the pause", late)
					}
				}
				if got, err := b.service.Get(b.Context(), account, webhook.ID); err != nil || !got.PausedUntil.IsZero() {
					t.Errorf("after the pause: %+v, %v", got, err)
				}
			})
		})
	}
}

// A pause continues while the service is stopped, and can end during that time.
func TestPause_Restart_KeepsItsEnd(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		webhook, other := b.subscribe("a"), b.subscribe("b")
		stop := b.start()
		b.pause(webhook, time.Now().Add(3*time.Hour))
		b.pause(other, webhooks.NoEnd)
		b.publish()
		stop = b.restart(stop, webhooks.Config{})
		time.Sleep(time.Hour)
		if n := len(b.hits.of("")); n != 0 {
			t.Errorf("%d requests after a restart during the pause", n)
		}
		stop()
		time.Sleep(3 * time.Hour)
		b.start()
		time.Sleep(time.Second)
		if a, b := len(b.hits.of("a")), len(b.hits.of("b")); a != 1 || b != 0 {
			t.Errorf("%d and %d requests after the end of the first pause", a, b)
		}
		time.Sleep(20 * day)
		b.pause(other, time.Time{})
		time.Sleep(time.Second)
		if n := len(b.hits.of("b")); n != 1 {
			t.Errorf("%d requests after the second pause was ended", n)
		}
	})
}

// If the wall clock is set, the pause ends by the new time.
func TestPause_ClockIsSet_EndsByTheClock(t *testing.T) {
	for step, want := range map[time.Duration]time.Duration{50 * time.Minute: 10 * time.Minute, 2 * time.Hour: 0, -time.Hour: 2 * time.Hour} {
		clock := new(testclock.Clock)
		inBubble(t, webhooks.Config{Now: clock.Now}, status(http.StatusOK), func(b *bubble) {
			webhook := b.subscribe("a")
			b.start()
			b.pause(webhook, clock.Now().Add(time.Hour))
			b.publish()
			synctest.Wait()
			begun := time.Now()
			clock.Add(step)
			time.Sleep(5 * time.Hour)
			hits := b.hits.of("a")
			if len(hits) != 1 {
				t.Fatalf("clock set by %v: %d requests", step, len(hits))
			}
			if late := hits[0].at.Sub(begun) - want; late < 0 || late > 11*time.Second { // the clock is checked every 10 s
				t.Errorf("clock set by %v: sent after %v, want %v", step, hits[0].at.Sub(begun), want)
			}
		})
	}
}

// A pause, Active and a hold are independent: events are sent when none of them prevents it. Test
// events are sent during a pause.
func TestPause_WithOffAndHold_AllMustEnd(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		b.pause(webhook, time.Now().Add(time.Hour))
		waits := b.publish()
		b.setActive(webhook, false)
		skipped := b.publish()
		time.Sleep(10 * time.Minute)
		b.setActive(webhook, true)
		if _, err := b.service.SendTest(b.Context(), account, webhook.ID); err != nil || len(b.hits.of("a")) != 1 {
			t.Errorf("test event: %v, %d requests", err, len(b.hits.of("a")))
		}
		b.recoverStep(webhook)
		time.Sleep(10 * time.Minute)
		b.wantState(waits, webhooks.Pending, 0)
		b.wantState(skipped, webhooks.Pending, 0)
		hold(b, b.store, webhook)
		time.Sleep(time.Hour)
		b.wantState(waits, webhooks.Pending, 0)
		_, err := b.service.Release(b.Context(), account, webhook.ID)
		b.must(err)
		time.Sleep(time.Minute)
		b.wantState(waits, webhooks.Delivered, 1)
		b.wantState(skipped, webhooks.Delivered, 1)

		b.pause(webhook, webhooks.NoEnd)
		b.publish()
		b.must(b.service.Delete(b.Context(), account, webhook.ID, webhooks.DeleteParams{}))
		time.Sleep(time.Hour)
		if stats, err := b.service.Stats(b.Context()); err != nil || stats.Pending != 0 {
			t.Errorf("pending after the deletion: %+v, %v", stats, err)
		}
	})
}

// A paused webhook does not count as failing, not even because of attempts that were in flight. The
// time of the pause does not disable it.
func TestPause_WhileFailing_DoesNotDisable(t *testing.T) {
	diary := &diary{}
	var slow atomic.Bool
	handler := func(w http.ResponseWriter, _ *http.Request) {
		if slow.Load() {
			time.Sleep(10 * time.Second)
		}
		w.WriteHeader(http.StatusInternalServerError)
	}
	inBubble(t, webhooks.Config{Observe: diary.observer(), Retention: webhooks.Retention{Payloads: 60 * day}}, handler, func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		b.publishMany(2)
		time.Sleep(2 * day)
		slow.Store(true)
		b.publishMany(2)
		synctest.Wait()
		b.pause(webhook, time.Now().Add(20*day))
		time.Sleep(20*day - time.Minute)
		got, err := b.service.Get(b.Context(), account, webhook.ID)
		failing, off := diary.told()
		if err != nil || !got.Active || !got.FailingSince.IsZero() || got.FailedAgain || len(failing)+len(off) > 0 {
			t.Errorf("during the pause: %+v, %v; told %v, %v", got, err, failing, off)
		}
		time.Sleep(day)
		if got, err := b.service.Get(b.Context(), account, webhook.ID); err != nil || !got.Active || got.FailingSince.IsZero() || time.Since(got.FailingSince) > day {
			t.Errorf("a day after the pause: %+v, %v", got, err)
		}
	})
}

// Events whose retention ends during a pause are given up, as usual.
func TestPause_RetentionEnds_GivesUp(t *testing.T) {
	config := webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Second}}, Retention: webhooks.Retention{Payloads: time.Hour, Attempts: 90 * day}}
	inBubble(t, config, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		b.start()
		b.pause(webhook, time.Now().Add(2*day))
		event := b.publish()
		time.Sleep(3 * day)
		if got := b.delivery(event); got.State != webhooks.Dead || len(b.hits.of("a")) != 0 {
			t.Errorf("%s after %d requests", got.State, len(b.hits.of("a")))
		}
	})
}

func TestPause_IsValidatedAndAudited(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		for _, invalid := range []time.Time{time.Now(), time.Now().Add(-time.Hour), webhooks.NoEnd.Add(time.Millisecond)} {
			_, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{PausedUntil: &invalid})
			wantInvalid(b, err, "pausedUntil")
		}
		end := time.Now().Add(time.Hour).UTC()
		b.pause(webhook, time.Time{}) // changes nothing
		b.pause(webhook, webhooks.NoEnd)
		b.pause(webhook, end)
		b.pause(webhook, time.Time{})
		b.pause(webhook, end)
		time.Sleep(2 * time.Hour)
		b.pause(webhook, time.Time{}) // has ended already
		type entry struct {
			Turned string
			Until  time.Time
		}
		var got []entry
		entries := auditOf(t, b.store.Store.(audit.Store))
		slices.Reverse(entries)
		for _, n := range entries[1:] { // after the creation
			if !cmp.Equal(n.Changed, []string{"pausedUntil"}) {
				t.Errorf("Changed = %q", n.Changed)
			}
			got = append(got, entry{n.Turned, n.Until})
		}
		want := []entry{{"paused", time.Time{}}, {"paused", end.Truncate(time.Millisecond)}, {"resumed", time.Time{}}, {"paused", end.Truncate(time.Millisecond)}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("audit entries (-want +got):\n%s", diff)
		}
	})
}
