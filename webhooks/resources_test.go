package webhooks_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/webhooks"
)

// publishAbout publishes a balance.low event of a resource and returns its ID.
func (b *bubble) publishAbout(resource string) string {
	b.Helper()
	id := b.service.NewEventID()
	noError(b, b.service.Publish(b.Context(), webhooks.Event{ID: id, Account: account, Resource: resource, Data: lowBalance}))
	return id
}

// After a webhook is limited to resources, earlier events of other resources must not be sent,
// whether they are pending, redelivered or recovered. A key with less authority may have changed
// the URL.
func TestWebhook_LimitedAfterPublication_GetsNoOtherEvents(t *testing.T) {
	inBubble(t, webhooks.Config{}, status(http.StatusOK), func(b *bubble) {
		webhook := b.subscribe("a")
		own, other, none := b.publishAbout("x"), b.publishAbout("y"), b.publishAbout("")
		limited, err := b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Resources: &[]string{"x"}})
		noError(b, err)
		b.start()
		time.Sleep(time.Minute)
		b.wantState(own, webhooks.Delivered, 1)
		for _, id := range []string{other, none} {
			b.wantState(id, webhooks.Dead, 1)
			if last := delivery(b, b.service, id).Attempts[0]; last.Class != webhooks.ClassResource {
				t.Errorf("attempt %+v, want class %q", last, webhooks.ClassResource)
			}
		}
		noError(b, b.service.Redeliver(b.Context(), account, webhook.ID, other))
		time.Sleep(time.Minute)
		b.wantState(other, webhooks.Dead, 2)
		recovery, err := b.service.Recover(b.Context(), account, webhook.ID, webhooks.RecoverParams{})
		noError(b, err)
		time.Sleep(time.Minute)
		if recovery, err = b.service.Recovery(b.Context(), account, recovery.ID); err != nil || !recovery.Done || recovery.Recovered != 0 {
			t.Errorf("recovery %+v, %v, want it done with 0 recovered", recovery, err)
		}
		if n := len(b.hits.of("a")); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
		if now, _ := b.service.Get(b.Context(), account, webhook.ID); !now.FailingSince.IsZero() || now.Resources != limited.Resources {
			t.Errorf("webhook %+v, want it to be limited and not failing", now)
		}

		_, err = b.service.Update(b.Context(), account, webhook.ID, webhooks.UpdateParams{Resources: new([]string)})
		noError(b, err)
		noError(b, b.service.Redeliver(b.Context(), account, webhook.ID, other))
		time.Sleep(time.Minute)
		b.wantState(other, webhooks.Delivered, 3)
	})
}

func TestResources_Invalid_AreRefusedByName(t *testing.T) {
	service := newClocked(t)
	webhook := subscribe(t, service, anyURL)
	for _, names := range [][]string{{}, {""}, {"a b"}, {"é"}, {strings.Repeat("x", 129)}} {
		_, err := service.Create(t.Context(), account, webhooks.CreateParams{URL: anyURL, Events: onBalance, Resources: names})
		wantInvalid(t, err, "resources")
		_, err = service.Update(t.Context(), account, webhook.ID, webhooks.UpdateParams{Resources: &names})
		wantInvalid(t, err, "resources")
	}
	for _, name := range []string{"a b", "é", strings.Repeat("x", 129)} {
		err := service.Publish(t.Context(), webhooks.Event{Account: account, Resource: name, Data: lowBalance})
		wantInvalid(t, err, "resource")
	}
}

// Pages must continue past webhooks that the query does not select.
func TestList_Within_ListsOnlyWebhooksWithin(t *testing.T) {
	service := newClocked(t)
	var want []string
	var x webhooks.Webhook
	for i := range 9 {
		w, err := service.Create(t.Context(), account, webhooks.CreateParams{URL: anyURL, Events: onBalance, Resources: [][]string{nil, {"x"}, {"x", "y"}}[i%3]})
		noError(t, err)
		if i%3 == 1 {
			x, want = w, slices.Insert(want, 0, w.ID)
		}
	}
	var got []string
	query := webhooks.WebhookQuery{Within: x.Resources, Limit: 2}
	for pages := 1; ; pages++ {
		page, err := service.List(t.Context(), account, query)
		noError(t, err)
		for _, w := range page.Webhooks {
			got = append(got, w.ID)
		}
		if query.After = page.Next; page.Next == "" || pages > 9 {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("webhooks (-want +got):\n%s", diff)
	}
}
