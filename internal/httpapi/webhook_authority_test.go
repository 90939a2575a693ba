package httpapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// TestWebhookAuthority checks that changing or using a webhook requires authority over its past and
// future events.
func TestWebhookAuthority(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	_, files := h.key(alice, scopes.FilesRead)
	_, account := h.key(alice, scopes.AccountRead)
	_, both := h.key(alice, scopes.FilesRead, scopes.AccountRead)
	const onFiles, onBalance, onBoth = `["files.expiring"]`, `["balance.low"]`, `["files.expiring","balance.low"]`
	for _, test := range []struct {
		token, before, after string
		allowed              bool
	}{
		{files, onFiles, onFiles, true},
		{files, onFiles, onBoth, false},
		{files, onFiles, onBalance, false},
		{files, onBoth, onFiles, false},
		{files, onBalance, onFiles, false},
		{account, onBalance, `["bandwidth.limit_reached"]`, true},
		{account, onBalance, onBoth, false},
		{account, onBoth, onBalance, false},
		{both, onFiles, onBalance, true},
		{both, onBalance, onBoth, true},
		{both, onBoth, onFiles, true},
	} {
		one := webhooksPath + "/" + h.do("POST", webhooksPath, admin, fmt.Sprintf(`{"url":"https://example.com","events":%s}`, test.before)).want(201, "").text("id")
		before := h.do("GET", one, admin, "").body
		got := h.do("PATCH", one, test.token, fmt.Sprintf(`{"events":%s}`, test.after))
		if test.allowed {
			got.want(200, "")
			h.do("PATCH", one, admin, fmt.Sprintf(`{"events":%s}`, test.before)).want(200, "")
			continue
		}
		got.want(403, "FORBIDDEN")
		if !strings.Contains(got.message(), "before and after") {
			t.Errorf("got message %q", got.message())
		}
		if after := h.do("GET", one, admin, "").body; after != before {
			t.Errorf("%s to %s: refused, and it is %s", test.before, test.after, after)
		}
	}
}

// TestAuthorityOverPastEvents uses a caller that may not read a webhook's past events. The caller
// must be able neither to resend these events nor to change the webhook's URL.
func TestAuthorityOverPastEvents(t *testing.T) {
	h := serve(t, storageapi.Config{})
	admin := h.admin(alice)
	_, account := h.key(alice, scopes.AccountRead)
	_, both := h.key(alice, scopes.FilesRead, scopes.AccountRead)
	one := webhooksPath + "/" + h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["files.expiring"]}`).want(201, "").text("id")
	err := h.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: someEvent, Account: alice, Data: eventsOfAllTypes[0]})
	if err != nil {
		t.Fatal(err)
	}
	for _, events := range []string{`["balance.low"]`, `["bandwidth.limit_reached"]`} {
		h.do("PATCH", one, admin, `{"events":`+events+`}`).want(200, "")
		for _, request := range []struct{ method, path, body string }{
			{"PATCH", "", `{"url":"https://evil.example"}`}, {"POST", "/rotate-secret", ""}, {"POST", "/test", ""},
			{"POST", "/deliveries/" + someEvent + "/redeliver", ""}, {"POST", "/deliveries/evt_none/redeliver", ""}, {"POST", "/recoveries", ""},
		} {
			h.do(request.method, one+request.path, account, request.body).want(403, "FORBIDDEN")
		}
	}
	h.do("PATCH", one, both, `{"url":"https://example.org"}`).want(200, "")
	h.do("DELETE", one, account, "").want(204, "")
}

// Between the creation and its repetition, the webhook has subscribed to events that the caller may
// not read.
func TestCreateWebhook_RepeatedAfterEventsChanged_IsRefused(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	_, files := h.key(alice, scopes.FilesRead)
	const body = `{"url":"https://example.com","events":["files.expiring"]}`
	id := h.do("POST", webhooksPath, files, body, idempotent("a")).want(201, "").text("id")
	h.do("POST", webhooksPath, files, body, idempotent("a")).want(200, "")
	h.do("PATCH", webhooksPath+"/"+id, admin, `{"url":"https://example.com/secret","events":["balance.low"]}`).want(200, "")
	h.do("POST", webhooksPath, files, body, idempotent("a")).want(403, "FORBIDDEN")
	h.do("POST", webhooksPath, admin, body, idempotent("a")).want(200, "")
}

func TestUpdateWebhook_EventsWidenedAfterCheck_AuthorityIsCheckedAgain(t *testing.T) {
	var widen func()
	config := newClock().config()
	config.Authorize = func(ctx context.Context, caller auth.Principal, access auth.Access) error {
		err := auth.LeastPrivilege(ctx, caller, access)
		if f := widen; access.Target != nil && f != nil {
			widen = nil
			f()
		}
		return err
	}
	h := serve(t, config)
	admin := h.admin(alice)
	_, account := h.key(alice, scopes.AccountRead)
	for _, request := range []struct{ method, path, body string }{
		{"PATCH", "", `{"url":"https://evil.example"}`}, {"POST", "/rotate-secret", ""}, {"DELETE", "", ""},
	} {
		id := h.do("POST", webhooksPath, admin, newWebhook).want(201, "").text("id")
		before, err := h.api.Webhooks.Get(t.Context(), alice, id)
		if err != nil {
			t.Fatal(err)
		}
		widen = func() {
			if _, err := h.api.Webhooks.Update(t.Context(), alice, id, webhooks.UpdateParams{Events: alerts.EventTypes()}); err != nil {
				t.Error(err)
			}
		}
		h.do(request.method, webhooksPath+"/"+id+request.path, account, request.body).want(403, "FORBIDDEN")
		after, err := h.api.Webhooks.Get(t.Context(), alice, id)
		if err != nil || after.URL != before.URL || !after.Secret.Equal(before.Secret) || len(after.Events) != len(alerts.EventTypes()) {
			t.Errorf("%s %s: it is %+v, %v", request.method, request.path, after, err)
		}
	}
}

// Each route answers alike for a webhook in another account and for a missing one.
func TestRoutes_WebhookOfAnotherAccount_AnswersAsMissing(t *testing.T) {
	h := serve(t, storageapi.Config{})
	admin, other := h.admin(alice), h.admin(bob)
	id := h.do("POST", webhooksPath, admin, newWebhook).want(201, "").text("id")
	h.publishSomeEvent()
	recovery := h.do("POST", webhooksPath+"/"+id+"/recoveries", admin, "").want(202, "").text("id")
	for _, route := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"PATCH", "", "{}"}, {"POST", "/rotate-secret", ""}, {"POST", "/test", ""}, {"GET", "/deliveries", ""},
		{"GET", "/deliveries/" + someEvent, ""}, {"POST", "/deliveries/" + someEvent + "/redeliver", ""},
		{"POST", "/recoveries", ""}, {"GET", "/recoveries/" + recovery, ""}, {"DELETE", "", ""},
	} {
		theirs := h.do(route.method, webhooksPath+"/"+id+route.path, other, route.body).want(404, "NOT_FOUND")
		nobodys := h.do(route.method, webhooksPath+"/wh_"+someULID+route.path, other, route.body).want(404, "NOT_FOUND")
		if theirs.body != nobodys.body {
			t.Errorf("%s %s: %s for another account's, %s for nobody's", route.method, route.path, theirs.body, nobodys.body)
		}
	}
	h.do("GET", webhooksPath+"/"+id, admin, "").want(200, "")
}
