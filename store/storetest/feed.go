package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/driver"
)

// A feed is a tester whose store reports to a Recorder, because Deliver is running.
type feed struct {
	*tester
	*Recorder
	source   driver.Deliveries
	shared   bool // other processes write to the store, so reports may arrive later
	cancel   context.CancelFunc
	returned chan error // result of Deliver
}

// ofDeliveries returns a runner that skips tests if the store does not implement
// [driver.Deliveries].
func ofDeliveries(run runner) runner {
	return func(name string, test func(*tester)) {
		run(name, func(t *tester) {
			if _, ok := t.store.(driver.Deliveries); !ok {
				t.Skip("store does not implement driver.Deliveries")
			}
			test(t)
		})
	}
}

// fed returns a runner that starts Deliver before each test.
func fed(run runner) func(name string, test func(*feed)) {
	return func(name string, test func(*feed)) {
		ofDeliveries(run)(name, func(t *tester) {
			f := t.deliver()
			defer f.end()
			test(f)
		})
	}
}

// deliver starts Deliver, and returns once all pending deliveries have been reported. The store
// reports all later steps.
func (t *tester) deliver() *feed {
	t.Helper()
	f := t.startDeliver()
	f.mark("before")
	for end := time.Now().Add(eventTimeout); ; time.Sleep(time.Millisecond) {
		left, err := f.source.Unreported(t.Context(), "")
		if t.must(err); left.Pending == 0 {
			return f
		}
		if time.Now().After(end) {
			t.Fatalf("%d deliveries not reported within %v", left.Pending, eventTimeout)
		}
	}
}

// startDeliver starts a goroutine that calls Deliver.
func (t *tester) startDeliver() *feed {
	t.Helper()
	shared := t.store.Capabilities().Shared
	ctx, cancel := context.WithCancel(t.Context())
	f := &feed{
		tester: t, Recorder: new(Recorder), source: t.store.(driver.Deliveries), shared: shared,
		cancel: cancel, returned: make(chan error, 1),
	}
	go func() {
		err := f.source.Deliver(ctx, f.Recorder)
		f.End()
		f.returned <- err
	}()
	return f
}

// end cancels Deliver, and checks its result and that all its reports were valid.
func (f *feed) end() {
	f.Helper()
	f.cancel()
	select {
	case err := <-f.returned:
		f.returned <- err // end may be called again
		f.wantError("Deliver", err, context.Canceled)
	case <-time.After(eventTimeout):
		f.Fatalf("Deliver did not return within %v after its context ended", eventTimeout)
	}
	for _, fault := range f.Faults() {
		f.Error(fault)
	}
}

const marker = "marker" // account and webhook of the events published by mark

// mark publishes an event and waits for its report. When mark returns, the reports of all earlier
// steps have arrived.
func (f *feed) mark(why string) {
	f.Helper()
	err := f.store.CreateWebhook(f.Context(), newWebhook(marker, marker), driver.CreateOptions{})
	if err != nil && !errors.Is(err, apierr.ErrExists) {
		f.Fatal(err)
	}
	event := newEvent(marker, rand.Text())
	f.enqueue(event, 1)
	loaded := map[driver.DeliveryRef]bool{}
	f.wait("an event published "+why, func(reports []Report) bool {
		for _, r := range reports {
			if r.Method == "Add" && r.Ref.WebhookID == marker && !loaded[r.Ref] {
				loaded[r.Ref] = true
				if f.load(r.Ref)[0].Event.ID == event.ID {
					return true
				}
			}
		}
		return false
	})
}

// wait waits until enough returns true for the reports so far.
func (f *feed) wait(what string, enough func([]Report) bool) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), eventTimeout)
	defer cancel()
	if err := f.Wait(ctx, enough); err != nil {
		f.Fatalf("%s not reported within %v; reports: %v", what, eventTimeout, f.seen())
	}
}

// seen returns the reports so far, except reports of marks, groups and troubles.
func (f *feed) seen() []Report {
	return slices.DeleteFunc(f.Reports(), func(r Report) bool {
		return r.Ref.WebhookID == marker || r.Scope.Group != 0 || r.Method == "Pause" || r.Method == "Trouble"
	})
}

// during calls do and returns the reports that arrived before do returned. If the store is shared
// by several processes, it also waits until the reports of all steps in do have arrived, see mark.
func (f *feed) during(do func()) []Report {
	f.Helper()
	before := len(f.seen())
	do()
	if f.shared {
		f.mark("afterwards")
	}
	return f.seen()[before:]
}

// added returns the first Add report of each delivery, and checks that there are want of them.
func (f *feed) added(reports []Report, want int) (added []Report) {
	f.Helper()
	seen := map[driver.DeliveryRef]bool{}
	for _, r := range reports {
		if r.Method == "Add" && !seen[r.Ref] {
			seen[r.Ref] = true
			added = append(added, r)
		}
	}
	if len(added) != want {
		f.Fatalf("Add reported %d deliveries, want %d; reports: %v", len(added), want, reports)
	}
	return added
}

// published stores an event for want webhooks, and returns its deliveries by webhook.
func (f *feed) published(event driver.EncodedEvent, want int) map[string]driver.DeliveryRef {
	f.Helper()
	refs, known := map[string]driver.DeliveryRef{}, f.seen()
	reports := slices.DeleteFunc(f.during(func() { f.enqueue(event, want) }), func(r Report) bool {
		return slices.ContainsFunc(known, func(k Report) bool { return k.Method == "Add" && k.Ref == r.Ref }) // repeated, which is allowed
	})
	for _, r := range f.added(reports, want) {
		refs[r.Ref.WebhookID] = r.Ref
	}
	if len(refs) != want {
		f.Fatalf("Add reported deliveries for %d webhooks, want %d", len(refs), want)
	}
	return refs
}

// only publishes an event that matches a single webhook, and returns its delivery.
func (f *feed) only(account, eventID string) (ref driver.DeliveryRef) {
	f.Helper()
	for _, ref = range f.published(newEvent(account, eventID), 1) {
	}
	return ref
}

// load returns the state of deliveries. It repeats Load for Unread deliveries.
func (f *feed) load(refs ...driver.DeliveryRef) []driver.LoadedDelivery {
	f.Helper()
	for end := time.Now().Add(eventTimeout); ; time.Sleep(time.Millisecond) {
		list, err := f.source.Load(f.Context(), refs)
		f.must(err)
		if len(list) != len(refs) {
			f.Fatalf("Load of %d deliveries returned %d", len(refs), len(list))
		}
		unread := func(d driver.LoadedDelivery) bool { return d.State == driver.Unread }
		if !slices.ContainsFunc(list, unread) {
			return list
		}
		if time.Now().After(end) {
			f.Fatalf("Load returned Unread for %v", eventTimeout)
		}
	}
}

// wantState checks the state of a delivery returned by Load.
func (f *feed) wantState(what string, ref driver.DeliveryRef, want driver.LoadState) driver.LoadedDelivery {
	f.Helper()
	got := f.load(ref)[0]
	wantSame(f.tester, "LoadedDelivery.State of "+what, got.State, want)
	return got
}

// result returns a result for the attempt with this number.
func result(ref driver.DeliveryRef, number int, outcome driver.Effect) driver.AttemptResult {
	r := driver.AttemptResult{DeliveryRef: ref, Effect: outcome, Attempt: attemptOf(Task{Attempt: number})}
	switch outcome {
	case driver.Deliver:
		r.Attempt.Class, r.Attempt.Error, r.Attempt.Status = "", "", 200
	case driver.Retry:
		r.RetryAfter = time.Hour
	}
	return r
}

// record stores results, which must all count.
func (f *feed) record(results ...driver.AttemptResult) {
	f.Helper()
	f.wantSettled(results, nil, driver.Settled{})
}

// wantSettled calls Settle, and checks which results and health changes do not count.
func (f *feed) wantSettled(results []driver.AttemptResult, health []driver.HealthChange, want driver.Settled) {
	f.Helper()
	got, err := f.source.Settle(f.Context(), results, health)
	f.must(err)
	wantSame(f.tester, "Settled", got, want)
}
