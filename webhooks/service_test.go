package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func TestCreate_ReturnsStoredWebhook(t *testing.T) {
	clock := func() time.Time { return noon.Add(1_234_567).In(time.FixedZone("", 7200)) }
	service := newService(t, memory.New(), webhooks.Config{Now: clock})
	webhook, err := service.Create(t.Context(), account, webhooks.CreateParams{
		URL:       anyURL,
		Events:    []webhooks.EventType{alerts.TypeFilesExpiring, alerts.TypeBalanceLow, alerts.TypeFilesExpiring},
		Threshold: 12_500_000_000,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := webhooks.Webhook{
		ID: webhook.ID, Account: account, URL: anyURL, WebhookHealth: driver.WebhookHealth{Active: true}, Threshold: 12_500_000_000, Secret: webhook.Secret,
		Events: []webhooks.EventType{alerts.TypeFilesExpiring, alerts.TypeBalanceLow}, CreatedAt: noon.Add(time.Millisecond), Version: 1,
	}
	if diff := cmp.Diff(want, webhook); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if form := regexp.MustCompile("^wh_[0-7][0-9A-HJKMNP-TV-Z]{25}$"); !form.MatchString(webhook.ID) {
		t.Errorf("the id is %q", webhook.ID)
	}
	if form := regexp.MustCompile("^whsec_[0-9A-Za-z+/]{43}=$"); !form.MatchString(webhook.Secret.Reveal()) {
		t.Errorf("the secret does not look like one")
	}
	stored, err := service.Get(t.Context(), account, webhook.ID)
	if diff := cmp.Diff(want, stored); err != nil || diff != "" {
		t.Errorf("stored (-want +got), %v:\n%s", err, diff)
	}
	if other := subscribe(t, service, anyURL); other.Secret.Equal(webhook.Secret) || other.ID <= webhook.ID {
		t.Errorf("the next webhook has the same secret, or the id %s after %s", other.ID, webhook.ID)
	}
}

func TestCreate_InvalidEvents_ReturnsError(t *testing.T) {
	long := webhooks.EventType(fmt.Sprintf("%01000000d", 1))
	for name, events := range map[string][]webhooks.EventType{
		"nil": nil, "none": {}, "unknown": {"files.deleted"}, "one of them": {alerts.TypeBalanceLow, "x"}, "empty": {""}, "all and one": {"*", alerts.TypeBalanceLow},
		"wrong case": {"Balance.Low"}, "a space": {"balance.low "}, "a pattern": {"balance.*"}, "long": {long, long, long, long, long, long, long, long, long, long, long},
	} {
		t.Run(name, func(t *testing.T) {
			service := newClocked(t)
			_, err := service.Create(t.Context(), account, webhooks.CreateParams{URL: anyURL, Events: events})
			wantInvalid(t, err, "events")
		})
	}
	_, err := newClocked(t).Create(t.Context(), account, webhooks.CreateParams{URL: anyURL, Events: []webhooks.EventType{"a", alerts.TypeBalanceLow, "b\n"}})
	if want := `; unknown: "a", "b\n"`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestCreate_InvalidAccount_ReturnsError(t *testing.T) {
	for _, account := range []string{"", "a\x00", "\xff", fmt.Sprintf("%0129d", 1)} {
		_, err := newClocked(t).Create(t.Context(), account, webhooks.CreateParams{URL: anyURL, Events: onBalance})
		wantInvalid(t, err, "account")
	}
}

func TestListIsNewestFirst(t *testing.T) {
	service := newClocked(t)
	var want, got []string
	for range 5 {
		want = append([]string{subscribe(t, service, anyURL).ID}, want...)
	}
	for query := (webhooks.WebhookQuery{Limit: 2}); ; {
		list, err := service.List(t.Context(), account, query)
		if err != nil || len(list.Webhooks) > 2 {
			t.Fatal(list, err)
		}
		for _, webhook := range list.Webhooks {
			got = append(got, webhook.ID)
		}
		if query.After = list.Next; query.After == "" {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err := service.List(t.Context(), account, webhooks.WebhookQuery{})
	wantInvalid(t, err, "limit")
}

// Webhooks of another account can be neither seen nor changed, and look as if they did not exist.
func TestAccountsAreIsolated(t *testing.T) {
	service := newClocked(t)
	mine := subscribe(t, service, anyURL)
	event := publish(t, service)
	calls := map[string]func(account, id string) error{
		"Get":    func(a, id string) error { _, err := service.Get(t.Context(), a, id); return err },
		"Delete": func(a, id string) error { return service.Delete(t.Context(), a, id, webhooks.DeleteParams{}) },
		"Update": func(a, id string) error {
			_, err := service.Update(t.Context(), a, id, webhooks.UpdateParams{Active: new(false)})
			return err
		},
		"RotateSecret": func(a, id string) error {
			_, err := service.RotateSecret(t.Context(), a, id, webhooks.RotateParams{})
			return err
		},
		"EventDeliveries": func(a, _ string) error { _, err := service.EventDeliveries(t.Context(), a, event); return err },
	}
	for name, call := range calls {
		theirs, nobodys := call("acct_2", mine.ID), call("acct_2", "wh_none")
		if !errors.Is(theirs, apierr.ErrNotFound) || nobodys == nil || theirs.Error() != nobodys.Error() {
			t.Errorf("%s: %v for another account's, %v for an unknown id", name, theirs, nobodys)
		}
	}
	if list, err := service.List(t.Context(), "acct_2", webhooks.WebhookQuery{Limit: 10}); err != nil || len(list.Webhooks) != 0 {
		t.Errorf("List: %v, %v", list, err)
	}
	if webhook, err := service.Get(t.Context(), account, mine.ID); err != nil || !webhook.Active || !webhook.Secret.Equal(mine.Secret) {
		t.Errorf("it is changed: %+v, %v", webhook, err)
	}
	// An event of another account does not go to this account's webhooks.
	if err := service.Publish(t.Context(), webhooks.Event{ID: event, Account: "acct_2", Data: lowBalance}); err != nil {
		t.Error(err)
	}
	if list, err := service.EventDeliveries(t.Context(), "acct_2", event); err != nil || len(list) != 0 {
		t.Errorf("acct_2's event of the same id has the deliveries %v, %v", list, err)
	}
}

func TestDeleteIsFinal(t *testing.T) {
	service := newClocked(t)
	webhook := subscribe(t, service, anyURL)
	event := publish(t, service)
	if err := service.Delete(t.Context(), account, webhook.ID, webhooks.DeleteParams{}); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"Get":    func() error { _, err := service.Get(t.Context(), account, webhook.ID); return err }(),
		"Delete": service.Delete(t.Context(), account, webhook.ID, webhooks.DeleteParams{}),
	} {
		if !errors.Is(err, apierr.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if list := deliveries(t, service, event); len(list) != 0 {
		t.Errorf("it is still owed %v", list)
	}
	if list := deliveries(t, service, publish(t, service)); len(list) != 0 {
		t.Errorf("it is owed new events: %v", list)
	}
}

func TestService_StoreFails_ReturnsItsError(t *testing.T) {
	memory := memory.New()
	service := newService(t, memory, webhooks.Config{})
	webhook := subscribe(t, service, anyURL)
	calls := map[string]func(ctx context.Context) error{
		"Create": func(ctx context.Context) error {
			_, err := service.Create(ctx, account, webhooks.CreateParams{URL: anyURL, Events: onBalance})
			return err
		},
		"Get": func(ctx context.Context) error { _, err := service.Get(ctx, account, webhook.ID); return err },
		"List": func(ctx context.Context) error {
			_, err := service.List(ctx, account, webhooks.WebhookQuery{Limit: 1})
			return err
		},
		"Delete": func(ctx context.Context) error {
			return service.Delete(ctx, account, webhook.ID, webhooks.DeleteParams{})
		},
		"Update": func(ctx context.Context) error {
			_, err := service.Update(ctx, account, webhook.ID, webhooks.UpdateParams{Active: new(false)})
			return err
		},
		"RotateSecret": func(ctx context.Context) error {
			_, err := service.RotateSecret(ctx, account, webhook.ID, webhooks.RotateParams{})
			return err
		},
		"Publish": func(ctx context.Context) error {
			return service.Publish(ctx, webhooks.Event{Account: account, Data: lowBalance})
		},
		"EventDeliveries": func(ctx context.Context) error { _, err := service.EventDeliveries(ctx, account, "x"); return err },
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range calls {
		if err := call(cancelled); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a cancelled context: %v", name, err)
		}
	}
	if err := memory.Close(); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		if err := call(t.Context()); !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s on a closed store: %v", name, err)
		}
	}
}

func TestEventTypes_MatchTheSpecification(t *testing.T) {
	want := []webhooks.EventType{
		"files.expiring", "balance.low", "bandwidth.limit_approaching", "bandwidth.limit_reached", "transactions.limit_approaching",
		"transactions.limit_reached",
	}
	if diff := cmp.Diff(want, alerts.EventTypes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	service := newService(t, memory.New(), webhooks.Config{})
	if diff := cmp.Diff(want, service.EventTypes()); diff != "" {
		t.Errorf("of a service (-want +got):\n%s", diff)
	}
	for _, eventType := range want {
		behind := scopes.AccountRead
		if eventType == "files.expiring" {
			behind = scopes.FilesRead
		}
		if got := service.ReadScopes([]webhooks.EventType{eventType}); got != scopes.Of(behind) {
			t.Errorf("%s takes %v", eventType, got)
		}
	}
	if got := service.ReadScopes(want).String(); got != "files:read account:read" {
		t.Errorf("all of them take %s", got)
	}
	// The caller may modify the returned list.
	alerts.EventTypes()[0] = "x"
	_ = append(alerts.EventTypes(), "y")
	if diff := cmp.Diff(want, alerts.EventTypes()); diff != "" {
		t.Errorf("after a caller changed its list (-want +got):\n%s", diff)
	}
}
