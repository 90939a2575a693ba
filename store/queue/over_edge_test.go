package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/queue"
	"github.com/storageapi/storageapi/webhooks"
)

var errDown = errors.New("down")

// An overTest makes calls of Claims in virtual time.
type overTest struct {
	*testing.T
	*modelStore
	claims *queue.Claims
}

func inOver(t *testing.T, test func(*overTest)) {
	synctest.Test(t, func(t *testing.T) {
		s := newModel("a")
		o := &overTest{t, s, s.over(nil)}
		defer o.claims.Close()
		test(o)
	})
}

func (o *overTest) claim() ([]webhooks.Task, time.Duration) {
	o.Helper()
	tasks, wait, err := o.claims.ClaimDeliveries(o.Context(), webhooks.Claim{Limit: 9, Lease: time.Hour})
	if err != nil {
		o.Fatal(err)
	}
	return tasks, wait
}

// claimed claims and wants that many tasks.
func (o *overTest) claimed(want int) []webhooks.Task {
	o.Helper()
	tasks, _ := o.claim()
	if len(tasks) != want {
		o.Fatalf("claimed %d tasks, want %d", len(tasks), want)
	}
	return tasks
}

func ended(task webhooks.Task, outcome webhooks.Outcome) webhooks.Settlement {
	return webhooks.Settlement{Task: task, Outcome: outcome, Attempt: webhooks.Attempt{Number: task.Attempt, StartedAt: time.Now()}}
}

// settle wants those settlements to be stale.
func (o *overTest) settle(stale []int, settlements ...webhooks.Settlement) {
	o.Helper()
	got, err := o.claims.SettleDeliveries(o.Context(), settlements)
	if diff := cmp.Diff(stale, got); err != nil || diff != "" {
		o.Fatalf("SettleDeliveries: %v; stale (-want +got):\n%s", err, diff)
	}
}

func (o *overTest) wantPending(want int) {
	o.Helper()
	b, err := o.claims.Backlog(o.Context(), "")
	if err != nil || b.Pending != want {
		o.Errorf("Backlog = %+v, %v; want %d pending", b, err, want)
	}
}

func ref(number uint64) webhooks.DeliveryRef {
	return webhooks.DeliveryRef{WebhookID: "a", Number: number}
}

func TestOver_ConflictWithRename_DecidesAgain(t *testing.T) {
	inOver(t, func(o *overTest) {
		o.enqueue(ref(1))
		end := ended(o.claimed(1)[0], webhooks.GiveUp)
		end.Deactivate, end.Off = webhooks.OffGone, &notices.Notice{ID: "off"}
		o.conflicts = 2
		o.settle(nil, end)
		w := o.hooks["a"]
		if w.Active || w.OffReason != webhooks.OffGone || len(w.Events) != 2 || o.rows[ref(1)].pending {
			o.Errorf("webhook %+v, delivery %+v; want it renamed twice and off, and the delivery settled", w, o.rows[ref(1)])
		}
		if diff := cmp.Diff([]string{"off"}, o.notices); diff != "" {
			o.Errorf("notices (-want +got):\n%s", diff)
		}
	})
}

func TestOver_PersonTurnsItOffFirst_KeepsThat(t *testing.T) {
	inOver(t, func(o *overTest) {
		for _, known := range []bool{true, false} {
			o.update("a", func(w *webhooks.Webhook) { w.WebhookHealth = webhooks.WebhookHealth{Active: true} })
			o.enqueue(ref(1))
			end := ended(o.claimed(1)[0], webhooks.GiveUp)
			end.Deactivate, end.Off = webhooks.OffGone, &notices.Notice{ID: "off"}
			feed := o.feed
			if !known {
				o.feed = nil // the change is reported late
			}
			o.update("a", func(w *webhooks.Webhook) { w.Active = false })
			o.settle(nil, end)
			if w := o.hooks["a"]; w.Active || w.OffReason != "" || len(o.notices) > 0 {
				o.Errorf("known: %t: the webhook is %+v, notices %v; want a person's off", known, w, o.notices)
			}
			if o.feed = feed; !known {
				feed.Webhook(o.hooks["a"])
			}
		}
	})
}

func TestOver_OtherURL_ResultSaysNothingOfTheWebhook(t *testing.T) {
	inOver(t, func(o *overTest) {
		o.enqueue(ref(1))
		end := ended(o.claimed(1)[0], webhooks.GiveUp)
		end.Rest = time.Hour
		o.update("a", func(w *webhooks.Webhook) { w.URL = "https://another" })
		o.settle(nil, end)
		if w := o.hooks["a"]; !w.FailingSince.IsZero() {
			o.Errorf("it is failing: %+v", w)
		}
		o.enqueue(ref(2))
		o.claimed(1)
	})
}

func TestOver_SettleFails_GoesOnUntilItIsStored(t *testing.T) {
	inOver(t, func(o *overTest) {
		o.enqueue(ref(1))
		end := ended(o.claimed(1)[0], webhooks.Deliver)
		o.err = errDown
		if _, err := o.claims.SettleDeliveries(o.Context(), []webhooks.Settlement{end}); !errors.Is(err, errDown) {
			o.Errorf("SettleDeliveries = %v, want %v", err, errDown)
		}
		o.claimed(0)
		o.wantPending(1)
		o.err = nil
		o.settle(nil, end)
		o.settle([]int{0}, end)
		o.wantPending(0)
		if w := o.hooks["a"]; w.ProvenAt.IsZero() || w.Version != 2 {
			o.Errorf("the webhook is %+v, want it proven with version 2", w)
		}
	})
}

func TestOver_SettledElsewhere_IsStaleAndForgotten(t *testing.T) {
	inOver(t, func(o *overTest) {
		o.enqueue(ref(1))
		o.enqueue(ref(2))
		tasks := o.claimed(2)
		*o.rows[ref(1)] = modelRow{attempts: 1}
		*o.rows[ref(2)] = modelRow{pending: true, attempts: 1, due: time.Now().Add(time.Minute)} // as by a call whose outcome was unknown
		o.settle([]int{0, 1}, ended(tasks[0], webhooks.Deliver), ended(tasks[1], webhooks.Deliver))
		o.claimed(0)
		o.wantPending(1)
		time.Sleep(time.Minute)
		if task := o.claimed(1)[0]; task.Attempt != 2 {
			o.Errorf("Attempt = %d, want 2", task.Attempt)
		}
	})
}

func TestOver_Unread_IsLoadedAgainAfterPauses(t *testing.T) {
	inOver(t, func(o *overTest) {
		o.enqueue(ref(1))
		o.unread = true
		var pauses []time.Duration
		for len(pauses) < 8 {
			_, wait := o.claim()
			if loads := o.loads; wait > 0 {
				pauses = append(pauses, wait)
				time.Sleep(wait - time.Millisecond)
				if o.claim(); o.loads > loads {
					o.Errorf("it is loaded again after less than %v", wait)
				}
				time.Sleep(time.Millisecond)
			}
		}
		ms := time.Millisecond
		if diff := cmp.Diff([]time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second, time.Second}, pauses); diff != "" {
			o.Errorf("pauses (-want +got):\n%s", diff)
		}
		o.unread = false
		o.claimed(1)
	})
}

func TestOver_Passive_WaitsForTheWebhook(t *testing.T) {
	inOver(t, func(o *overTest) {
		o.update("a", func(w *webhooks.Webhook) { w.Active = false })
		for i := range uint64(5) {
			o.enqueue(ref(i))
		}
		o.claimed(0)
		if _, wait := o.claim(); wait < time.Minute || o.loads != 1 {
			o.Errorf("wait = %v after %d loads, want an hour after 1", wait, o.loads)
		}
		o.update("a", func(w *webhooks.Webhook) { w.Active = true })
		o.claimed(5)
	})
}

func TestOver_Pause_BeginsNoAttemptUntilForget(t *testing.T) {
	inOver(t, func(o *overTest) {
		o.claimed(0)
		add := func(number uint64) {
			o.rows[ref(number)] = &modelRow{pending: true}
			o.feed.Add([]webhooks.PendingDelivery{{Number: number, Webhook: o.hooks["a"], Group: 7, Due: time.Now()}})
		}
		add(1)
		task := o.claimed(1)[0]
		o.feed.Pause([]webhooks.Group{7})
		add(2)
		o.update("a", func(w *webhooks.Webhook) { w.Events = nil })
		o.claimed(0)
		wantUnderWay := func(want map[webhooks.Group]int) {
			o.Helper()
			if diff := cmp.Diff(want, o.feed.UnderWay()); diff != "" {
				o.Errorf("UnderWay (-want +got):\n%s", diff)
			}
		}
		wantUnderWay(map[webhooks.Group]int{7: 1})
		o.settle(nil, ended(task, webhooks.Deliver))
		wantUnderWay(map[webhooks.Group]int{})
		o.feed.Forget(webhooks.Scope{Group: 7})
		o.wantPending(0)
		add(2)
		o.claimed(1)
	})
}

func TestOver_PausedWhileLoading_BeginsNoAttempt(t *testing.T) {
	inOver(t, func(o *overTest) {
		o.enqueue(ref(1))
		o.during = func() { o.feed.Pause([]webhooks.Group{0}) }
		o.claimed(0)
		o.during = func() {}
		if n := o.feed.UnderWay(); len(n) > 0 {
			o.Errorf("UnderWay = %v, want none", n)
		}
	})
}

func TestOver_ForgottenWhileLoading_BeginsNoAttempt(t *testing.T) {
	for _, scope := range []webhooks.Scope{{WebhookID: "a"}, {Account: account}} {
		inOver(t, func(o *overTest) {
			o.enqueue(ref(1))
			o.during = func() { o.feed.Forget(scope) }
			o.claimed(0)
			o.wantPending(0)
		})
	}
}

func TestOver_Purged_IsNotCounted(t *testing.T) {
	inOver(t, func(o *overTest) {
		o.enqueue(ref(1))
		o.claimed(1)
		o.enqueue(ref(2))
		o.rows[ref(2)].pending = false
		o.claims.Purged([]webhooks.DeliveryRef{ref(1), ref(2), ref(3)})
		o.wantPending(1)
	})
}

// A restarter is a store whose Deliver runs on a goroutine.
type restarter struct {
	*modelStore
	deliver func(ctx context.Context, s webhooks.Scheduler) error
}

func (r *restarter) Deliver(ctx context.Context, s webhooks.Scheduler) error {
	return r.deliver(ctx, s)
}

func TestOver_DeliverFails_BeginsAgainAndRepeatsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &restarter{modelStore: newModel("a")}
		fail := make(chan struct{}, 1)
		s.deliver = func(ctx context.Context, to webhooks.Scheduler) error {
			for number := range uint64(3) {
				to.Add([]webhooks.PendingDelivery{{Number: number, Webhook: s.hooks["a"], Due: time.Now()}})
				s.rows[ref(number)] = &modelRow{pending: true}
			}
			to.Trouble(nil)
			select {
			case <-fail:
				return errDown
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		claims := queue.Over(s, queue.Options{})
		o := &overTest{t, s.modelStore, claims}
		tasks, _, err := claims.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 1, Lease: time.Hour})
		if err != nil || len(tasks) != 1 {
			t.Fatalf("claimed %d tasks, %v; want 1", len(tasks), err)
		}
		fail <- struct{}{}
		synctest.Wait()
		if _, _, err := claims.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 9, Lease: time.Hour}); !errors.Is(err, errDown) {
			t.Errorf("ClaimDeliveries = %v while nothing is reported, want %v", err, errDown)
		}
		if _, err := claims.LongestWait(t.Context()); !errors.Is(err, errDown) {
			t.Errorf("LongestWait = %v, want %v", err, errDown)
		}
		time.Sleep(time.Second)
		o.claimed(2)
		if _, err := claims.LongestWait(t.Context()); err != nil {
			t.Errorf("LongestWait = %v once all is reported", err)
		}
		s.rows[ref(0)] = &modelRow{pending: true}
		o.settle(nil, ended(tasks[0], webhooks.Deliver))
		o.claimed(0)
		claims.Close()
		if _, _, err := claims.ClaimDeliveries(t.Context(), webhooks.Claim{Limit: 9}); !errors.Is(err, store.ErrClosed) {
			t.Errorf("ClaimDeliveries = %v after Close, want %v", err, store.ErrClosed)
		}
	})
}

func TestOver_FirstClaim_WaitsForWhatIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &restarter{modelStore: newModel("a")}
		s.deliver = func(ctx context.Context, to webhooks.Scheduler) error {
			for number := range uint64(4) {
				time.Sleep(200 * time.Millisecond)
				to.Add([]webhooks.PendingDelivery{{Number: number, Webhook: s.hooks["a"], Due: time.Now()}})
			}
			to.Trouble(nil)
			<-ctx.Done()
			return ctx.Err()
		}
		for number := range uint64(4) {
			s.rows[ref(number)] = &modelRow{pending: true}
		}
		o := &overTest{t, s.modelStore, queue.Over(s, queue.Options{})}
		defer o.claims.Close()
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, _, err := o.claims.ClaimDeliveries(short, webhooks.Claim{Limit: 9, Lease: time.Hour}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ClaimDeliveries = %v, want the context's error", err)
		}
		o.claimed(4)
	})
}

func TestOver_NothingIsReported_ClaimsWaitASecondOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &restarter{modelStore: newModel("a")}
		s.deliver = func(ctx context.Context, to webhooks.Scheduler) error {
			to.Trouble(errDown)
			<-ctx.Done()
			return ctx.Err()
		}
		o := &overTest{t, s.modelStore, queue.Over(s, queue.Options{})}
		defer o.claims.Close()
		for _, want := range []time.Duration{time.Second, 0} {
			begun := time.Now()
			if _, wait := o.claim(); time.Since(begun) != want || wait > 50*time.Millisecond {
				t.Errorf("the claim took %v, its wait is %v; want %v and 50ms", time.Since(begun), wait, want)
			}
		}
		if _, err := o.claims.LongestWait(t.Context()); !errors.Is(err, errDown) {
			t.Errorf("LongestWait = %v, want %v", err, errDown)
		}
	})
}

func TestOver_Report_WakesUntilContextEnds(t *testing.T) {
	inOver(t, func(o *overTest) {
		o.claimed(0)
		ctx, cancel := context.WithCancel(o.Context())
		woken := 0
		ended := make(chan struct{})
		go func() {
			o.claims.Wake(ctx, func() { woken++ })
			close(ended)
		}()
		synctest.Wait()
		o.enqueue(ref(1))
		cancel()
		<-ended
		o.enqueue(ref(2))
		if woken != 1 {
			o.Errorf("woken %d times, want 1", woken)
		}
	})
}
