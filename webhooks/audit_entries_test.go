package webhooks_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// AddAuditEntries implements a part of [audit.Store].
func (f *flaky) AddAuditEntries(ctx context.Context, list []audit.Entry) (int, error) {
	f.mu.Lock()
	err := f.settleErr
	f.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return f.Store.(audit.Store).AddAuditEntries(ctx, list)
}

// told returns the pending audit entries of an account, oldest first.
func (b *bubble) told(of string) (list []audit.Entry) {
	b.Helper()
	page, err := b.store.Store.(audit.Store).ListAuditEntries(b.Context(), of, audit.Query{Limit: 1000})
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range page.Entries {
		if !n.Pending {
			b.Errorf("%s is not pending", n.Action)
		}
		list = append([]audit.Entry{n}, list...)
	}
	return list
}

func actions(list []audit.Entry) string {
	var names []string
	for _, n := range list {
		names = append(names, string(n.Action))
	}
	return strings.Join(names, " ")
}

// Each stage of a webhook's failure adds one audit entry, with the time of that stage and the
// service as the actor. A recovery also adds an entry, if the failure was reported.
func TestAuditEntries_WebhookFails_OnePerStage(t *testing.T) {
	var fails atomic.Bool
	fails.Store(true)
	config := webhooks.Config{Retry: webhooks.RetryPolicy{Delays: []time.Duration{time.Minute}}}
	inBubble(t, config, func(w http.ResponseWriter, _ *http.Request) {
		if fails.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}, func(b *bubble) {
		recovers, dies := b.subscribe("a"), b.subscribe("b")
		b.start()
		synctest.Wait()
		begun := time.Now()
		for hour := range 6 * 24 {
			if hour == 3*24 {
				fails.Store(false) // for an hour, so that both webhooks recover
				b.publish()
				time.Sleep(time.Hour)
				fails.Store(true)
			}
			b.publishMany(2)
			time.Sleep(time.Hour)
		}
		list := b.told(account)
		if got := actions(list); got != "webhook.created webhook.created webhook.failing webhook.failing webhook.recovered webhook.recovered webhook.failing webhook.failing" {
			t.Fatalf("told %s", got)
		}
		n := list[2]
		want := audit.Entry{
			ID: n.ID, At: n.At, Account: account, Action: audit.WebhookFailing, Target: n.Target,
			Actor: audit.Actor{Kind: audit.ActorService}, Since: begun.UTC(), Until: begun.Add(5 * day).UTC(), Pending: true,
		}
		if diff := cmp.Diff(want, n); diff != "" || n.Target.Kind != audit.TargetWebhook || n.Target.ID != recovers.ID && n.Target.ID != dies.ID {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if again := list[4]; !again.Since.Equal(begun) || again.Actor.Kind != audit.ActorService {
			t.Errorf("recovered: %+v", again)
		}
		for range 3 * 24 {
			b.publishMany(2)
			time.Sleep(time.Hour)
		}
		list = b.told(account)[8:]
		if actions(list) != "webhook.off webhook.off" || list[0].Reason != "failing" || list[0].Since.IsZero() {
			t.Errorf("told %+v", list)
		}
	}, driver.WithNotify())
}

// A receiver that is gone causes one audit entry, even if several attempts get 410.
func TestAuditEntries_Gone_OneEntry(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusGone), func(b *bubble) {
		b.subscribe("a")
		b.publishMany(20)
		b.start()
		time.Sleep(time.Hour)
		list := b.told(account)
		if actions(list) != "webhook.created webhook.off" || list[1].Reason != "gone" {
			t.Errorf("told %+v", list)
		}
	}, driver.WithNotify())
}

// After a failure of the store, one audit entry is added once the store is writable again.
func TestAuditEntries_StoreRecovers_OneEntry(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		b.subscribe("a")
		b.start()
		time.Sleep(time.Hour)
		if got := b.told(""); len(got) > 0 {
			t.Errorf("told %+v", got)
		}
		b.store.fail(errOutage, errOutage)
		begun := time.Now()
		b.publish()
		time.Sleep(time.Hour)
		if got := b.told(""); len(got) > 0 {
			t.Errorf("told %+v", got)
		}
		b.store.fail(nil, nil)
		time.Sleep(time.Hour)
		list := b.told("")
		if actions(list) != "store.recovered" {
			t.Fatalf("told %+v", list)
		}
		if n := list[0]; n.Since.Sub(begun) > time.Minute || n.Until.Sub(begun) < time.Hour || n.Until.Sub(begun) > time.Hour+2*time.Minute {
			t.Errorf("from %v to %v", n.Since.Sub(begun), n.Until.Sub(begun))
		}
	}, driver.WithNotify())
}
