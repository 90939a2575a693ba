package webhooks_test

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

type accountRenamed struct{}

func (accountRenamed) EventType() webhooks.EventType { return "accounts.renamed" }

// TestAllEvents subscribes to all events, and then declares two types. The type with a scope that
// was already required is sent at once. The type with a new scope is sent only after Events was set
// again. In the end both declarations are removed.
func TestAllEvents(t *testing.T) {
	store, all := memory.New(), []webhooks.EventType{webhooks.AllEvents}
	before := newService(t, store, webhooks.Config{})
	params := webhooks.CreateParams{URL: anyURL, Events: slices.Concat(all, all), IdempotencyKey: "a"}
	webhook, err := before.Create(t.Context(), account, params)
	noError(t, err)
	laterThan := func(at time.Time) { // the reasons compare times in milliseconds
		for !time.Now().Truncate(time.Millisecond).After(at) {
			runtime.Gosched()
		}
	}
	laterThan(webhook.CreatedAt)
	twoScopes := []scopes.Scope{scopes.FilesRead, scopes.AccountRead}
	if diff := cmp.Diff(webhooks.Webhook{Events: all, EventScopes: twoScopes}, webhooks.Webhook{Events: webhook.Events, EventScopes: webhook.EventScopes}); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}

	config, option := withTeams(t)
	config.Events = append(config.Events, webhooks.EventDeclaration{Type: "accounts.renamed", Description: "Account renamed", Scope: scopes.AccountRead, Example: accountRenamed{}})
	service := newService(t, store, config, option)
	wantSent := func(data webhooks.Data, want bool) (id string) {
		t.Helper()
		id = service.NewEventID()
		noError(t, service.Publish(t.Context(), webhooks.Event{ID: id, Account: account, Data: data}))
		deliveries, err := service.EventDeliveries(t.Context(), account, id)
		noError(t, err)
		if got := len(deliveries) == 1; got != want {
			t.Errorf("%s is sent: %v, want %v", data.EventType(), got, want)
		}
		if got := service.Subscribes(&webhook, data.EventType()); got != want {
			t.Errorf("Subscribes(%s) = %v, want %v", data.EventType(), got, want)
		}
		return id
	}
	wantReason := func(id string, want webhooks.Reason) {
		t.Helper()
		if x, err := service.Explain(t.Context(), account, id, webhook.ID); err != nil || x.Reason != want {
			t.Errorf("reason %s, %v, want %s", x.Reason, err, want)
		}
	}
	update := func(events ...webhooks.EventType) {
		t.Helper()
		webhook, err = service.Update(t.Context(), account, webhook.ID, webhooks.UpdateParams{Events: events})
		noError(t, err)
	}
	wantSent(lowBalance, true)
	wantSent(accountRenamed{}, true)
	wantSent(teamCreated{}, false)
	if again, err := service.Create(t.Context(), account, params); err != nil || again.ID != webhook.ID {
		t.Errorf("creation with the same key: %s, %v, want %s", again.ID, err, webhook.ID)
	}
	_, err = service.Update(t.Context(), account, webhook.ID, webhooks.UpdateParams{Threshold: new(uint64(1))})
	noError(t, err)
	missed := wantSent(teamCreated{}, false)
	wantReason(missed, webhooks.ReasonNotSubscribed)
	laterThan(time.Now().Truncate(time.Millisecond))
	update(all...)
	wantSent(teamCreated{}, true)
	wantReason(missed, webhooks.ReasonChangedLater)

	// The scopes are still required after a change to fewer events, because earlier events may be
	// pending.
	update(alerts.TypeBalanceLow)
	wantSent(teamCreated{}, false)
	wantSent(accountRenamed{}, false)
	wantSent(lowBalance, true)
	threeScopes := scopes.Of(scopes.FilesRead, scopes.AccountRead, "teams:read")
	if got := service.ReadScopes(webhook.PastEvents, webhook.EventScopes...); !slices.Equal(webhook.PastEvents, all) || got != threeScopes {
		t.Errorf("past events %q require %q, want %q", webhook.PastEvents, got, threeScopes)
	}
	if got := service.ReadScopes(webhook.Events, webhook.EventScopes...); got != scopes.Of(scopes.AccountRead) {
		t.Errorf("events require %q", got)
	}

	update(all...)
	if len(webhook.PastEvents) != 1 || webhook.PastEvents[0] != alerts.TypeBalanceLow {
		t.Errorf("past events %q", webhook.PastEvents)
	}
	if got := before.ReadScopes(webhook.Events, webhook.EventScopes...); got != scopes.Specified() {
		t.Errorf("after a scope was withdrawn, the events require %q, want all", got)
	}
	kept, err := before.Update(t.Context(), account, webhook.ID, webhooks.UpdateParams{Events: all})
	if err != nil || !slices.Equal(kept.EventScopes, webhook.EventScopes) {
		t.Errorf("scopes are %q, %v, want %q", kept.EventScopes, err, webhook.EventScopes)
	}
}

func TestAllEvents_WithOtherTypes_IsRefused(t *testing.T) {
	service := newService(t, memory.New(), webhooks.Config{})
	webhook := subscribe(t, service, anyURL)
	for _, events := range [][]webhooks.EventType{{webhooks.AllEvents, alerts.TypeBalanceLow}, {alerts.TypeBalanceLow, webhooks.AllEvents}, {webhooks.AllEvents, "a.b"}} {
		_, err := service.Create(t.Context(), account, webhooks.CreateParams{URL: anyURL, Events: events})
		wantInvalid(t, err, "events")
		_, err = service.Update(t.Context(), account, webhook.ID, webhooks.UpdateParams{Events: events})
		wantInvalid(t, err, "events")
	}
}
