package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/webhooks"
)

// A step is a request and one of the store methods that the API calls to answer it.
type step struct{ store, method, path, body, pattern string }

// someEvent is the ID of an event that is published before the steps.
const someEvent = "evt_1"

func (h *host) publishSomeEvent() {
	h.Helper()
	event := webhooks.Event{ID: someEvent, Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
	if err := h.api.Webhooks.Publish(h.Context(), event); err != nil {
		h.Fatal(err)
	}
}

func steps(key, webhook string) []step {
	const newWebhook = `{"url":"https://example.com/?secret","events":["balance.low"]}`
	oneKey, oneWebhook := keysPath+"/"+key, webhooksPath+"/"+webhook
	return []step{
		{"KeyByHash", "GET", keysPath, "", ""},
		{"CreateKey", "POST", keysPath, newKey, "POST /v2/api-keys"},
		{"ListKeys", "GET", keysPath + "?limit=7", "", "GET /v2/api-keys"},
		{"KeyByID", "GET", oneKey, "", "GET /v2/api-keys/{id}"},
		{"KeyByID", "PATCH", oneKey, `{"name":"b"}`, "PATCH /v2/api-keys/{id}"},
		{"UpdateKey", "PATCH", oneKey, `{"name":"b"}`, "PATCH /v2/api-keys/{id}"},
		{"KeyByID", "POST", oneKey + "/rotate", "", "POST /v2/api-keys/{id}/rotate"},
		{"UpdateKey", "POST", oneKey + "/rotate", "", "POST /v2/api-keys/{id}/rotate"},
		{"KeyByID", "DELETE", oneKey, "", "DELETE /v2/api-keys/{id}"},
		{"DeleteKey", "DELETE", oneKey, "", "DELETE /v2/api-keys/{id}"},
		{"CreateWebhook", "POST", webhooksPath, newWebhook, "POST /v2/notifications/webhooks"},
		{"ListWebhooks", "GET", webhooksPath, "", "GET /v2/notifications/webhooks"},
		{"WebhookByID", "GET", oneWebhook, "", "GET /v2/notifications/webhooks/{id}"},
		{"WebhookByID", "PATCH", oneWebhook, `{"active":false}`, "PATCH /v2/notifications/webhooks/{id}"},
		{"UpdateWebhook", "PATCH", oneWebhook, `{"active":false}`, "PATCH /v2/notifications/webhooks/{id}"},
		{"WebhookByID", "POST", oneWebhook + "/rotate-secret", "", "POST /v2/notifications/webhooks/{id}/rotate-secret"},
		{"UpdateWebhook", "POST", oneWebhook + "/rotate-secret", "", "POST /v2/notifications/webhooks/{id}/rotate-secret"},
		{"WebhookByID", "POST", oneWebhook + "/test", "", "POST /v2/notifications/webhooks/{id}/test"},
		{"ListDeliveries", "GET", oneWebhook + "/deliveries", "", "GET /v2/notifications/webhooks/{id}/deliveries"},
		{"WebhookByID", "GET", oneWebhook + "/deliveries/" + someEvent, "", "GET /v2/notifications/webhooks/{id}/deliveries/{eventId}"},
		{"EventDeliveries", "GET", oneWebhook + "/deliveries/" + someEvent, "", "GET /v2/notifications/webhooks/{id}/deliveries/{eventId}"},
		{"EventDeliveries", "POST", oneWebhook + "/deliveries/" + someEvent + "/redeliver", "", "POST /v2/notifications/webhooks/{id}/deliveries/{eventId}/redeliver"},
		{"Redeliver", "POST", oneWebhook + "/deliveries/" + someEvent + "/redeliver", "", "POST /v2/notifications/webhooks/{id}/deliveries/{eventId}/redeliver"},
		{"WebhookByID", "POST", oneWebhook + "/recoveries", "", "POST /v2/notifications/webhooks/{id}/recoveries"},
		{"CreateRecovery", "POST", oneWebhook + "/recoveries", "", "POST /v2/notifications/webhooks/{id}/recoveries"},
		{"WebhookByID", "GET", oneWebhook + "/deliveries/" + someEvent + "/body", "", "GET /v2/notifications/webhooks/{id}/deliveries/{eventId}/body"},
		{"EventDeliveries", "GET", oneWebhook + "/deliveries/" + someEvent + "/body", "", "GET /v2/notifications/webhooks/{id}/deliveries/{eventId}/body"},
		{"EventByID", "GET", oneWebhook + "/deliveries/" + someEvent + "/body", "", "GET /v2/notifications/webhooks/{id}/deliveries/{eventId}/body"},
		{"EventByID", "GET", oneWebhook + "/deliveries/" + someEvent + "/explanation", "", "GET /v2/notifications/webhooks/{id}/deliveries/{eventId}/explanation"},
		{"EventDeliveries", "GET", oneWebhook + "/deliveries/" + someEvent + "/explanation", "", "GET /v2/notifications/webhooks/{id}/deliveries/{eventId}/explanation"},
		{"EventByID", "GET", "/v2/notifications/events/" + someEvent + "/body", "", "GET /v2/notifications/events/{id}/body"},
		{"ListEvents", "GET", "/v2/notifications/events", "", "GET /v2/notifications/events"},
		{"ListAuditEntries", "GET", "/v2/audit-log", "", "GET /v2/audit-log"},
		{"RecoveryByID", "GET", oneWebhook + "/recoveries/rec_" + someULID, "", "GET /v2/notifications/webhooks/{id}/recoveries/{recoveryId}"},
		{"WebhookByID", "DELETE", oneWebhook, "", "DELETE /v2/notifications/webhooks/{id}"},
		{"DeleteWebhook", "DELETE", oneWebhook, "", "DELETE /v2/notifications/webhooks/{id}"},
	}
}

const internalError = `{"error":{"code":"INTERNAL_ERROR","message":"Something went wrong on our side. Try again later."}}`

func TestFailingStore(t *testing.T) {
	faults, log := newFaulty(), new(testlog.Book)
	h := serve(t, storageapi.Config{Store: faults, Logger: log.Logger()})
	admin := h.admin(alice)
	key, _ := h.key(alice, scopes.FilesRead)
	webhook := h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "").text("id")
	h.publishSomeEvent()
	state := func() string {
		faults.before = func(string) error { return nil }
		return h.do("GET", keysPath, admin, "").want(200, "").body + h.do("GET", webhooksPath, admin, "").want(200, "").body
	}
	state() // the first call changes lastUsedAt
	before := state()
	for _, step := range steps(key, webhook) {
		log.Reset()
		faults.before = func(method string) error {
			if method == step.store {
				return errors.New("disk full on rack 7")
			}
			return nil
		}
		got := h.do(step.method, step.path, admin, step.body).want(500, "INTERNAL_ERROR")
		if got.body != internalError {
			t.Errorf("%+v: got %s", step, got.body)
		}
		method, route, _ := strings.Cut(step.pattern, " ")
		for _, want := range []string{"level=ERROR", "rack 7", "method=" + method, "route=" + route} {
			if !strings.Contains(log.String(), want) && step.store != "KeyByHash" {
				t.Errorf("%+v: no %q in log: %s", step, want, log)
			}
		}
		if strings.Count(log.String(), "\n") != 1 || strings.Contains(log.String(), admin) || strings.Contains(log.String(), "limit=7") {
			t.Errorf("%+v: log: %s", step, log)
		}
	}
	for failure, says := range map[error]string{auth.ErrUnavailable: "Nothing was changed.", auth.ErrInterrupted: "may have been made."} {
		for _, step := range steps(key, webhook) {
			faults.before = func(method string) error {
				if method == step.store {
					return fmt.Errorf("%w: dial rack 7: refused", failure)
				}
				return nil
			}
			got := h.do(step.method, step.path, admin, step.body).want(503, "SERVICE_UNAVAILABLE")
			if after := got.header.Get("Retry-After"); after != "5" || strings.Contains(got.body, "rack") || !strings.Contains(got.body, says) {
				t.Errorf("%+v, %v: Retry-After is %q, want 5; body %s, want %q in it", step, failure, after, got.body, says)
			}
		}
	}
	before = trimLastUse(before)
	if diff := cmp.Diff(before, trimLastUse(state())); diff != "" {
		t.Errorf("a failed request left something behind:\n%s", diff)
	}
}

var lastUse = regexp.MustCompile(`"lastUsedAt":[^,}]*|,"lastUsedFrom":"[^"]*"|,"(scopes|networks)Used":\[[^\]]*\]`)

func trimLastUse(s string) string { return lastUse.ReplaceAllString(s, "") }

func TestStoreErrors_AreMappedToStatuses(t *testing.T) {
	faults := newFaulty()
	h := serve(t, storageapi.Config{Store: faults})
	admin := h.admin(alice)
	key, _ := h.key(alice, scopes.FilesRead)
	webhook := h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "").text("id")
	h.publishSomeEvent()
	answers := map[string]struct {
		err    error
		status int
		code   string
	}{
		"CreateKey":       {apierr.ErrExists, 409, "CONFLICT"},
		"CreateWebhook":   {apierr.ErrExists, 409, "CONFLICT"},
		"DeleteKey":       {apierr.ErrNotFound, 404, "NOT_FOUND"}, // deleted after it was read
		"DeleteWebhook":   {apierr.ErrNotFound, 404, "NOT_FOUND"},
		"UpdateWebhook":   {apierr.ErrNotFound, 404, "NOT_FOUND"},
		"ListDeliveries":  {apierr.ErrNotFound, 404, "NOT_FOUND"},
		"EventDeliveries": {apierr.ErrNotFound, 404, "NOT_FOUND"},
		"Redeliver":       {apierr.ErrNotFound, 409, "CONFLICT"}, // its payload has been purged
		"CreateRecovery":  {apierr.ErrNotFound, 404, "NOT_FOUND"},
		"RecoveryByID":    {apierr.ErrNotFound, 404, "NOT_FOUND"},
		"UpdateKey":       {apierr.ErrNotFound, 404, "NOT_FOUND"},
	}
	for _, step := range steps(key, webhook) {
		answer, ok := answers[step.store]
		if !ok {
			continue
		}
		faults.before = func(method string) error {
			if method == step.store {
				return answer.err
			}
			return nil
		}
		h.do(step.method, step.path, admin, step.body).want(answer.status, answer.code)
	}
}

// TestCancelledRequest disconnects the client during each step. The request must have no effect,
// and nothing may be logged as an error.
func TestCancelledRequest(t *testing.T) {
	faults, log := newFaulty(), new(testlog.Book)
	h := serve(t, storageapi.Config{Store: faults, Logger: log.Logger()})
	admin := h.admin(alice)
	key, _ := h.key(alice, scopes.FilesRead)
	webhook := h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "").text("id")
	h.publishSomeEvent()
	before := trimLastUse(h.do("GET", keysPath, admin, "").body + h.do("GET", webhooksPath, admin, "").body)
	for _, step := range steps(key, webhook) {
		ctx, cancel := context.WithCancel(t.Context())
		faults.before = func(method string) error {
			if method == step.store {
				cancel()
			}
			return nil
		}
		r := httptest.NewRequestWithContext(ctx, step.method, step.path, strings.NewReader(step.body))
		r.Header = http.Header{"Api-Key": {admin}, "Content-Type": {"application/json"}}
		w := httptest.NewRecorder()
		h.api.ServeHTTP(w, r)
		if w.Code != 500 || w.Body.String() != internalError+"\n" {
			t.Errorf("%+v: got %d %s", step, w.Code, w.Body)
		}
		cancel()
	}
	faults.before = func(string) error { return nil }
	after := trimLastUse(h.do("GET", keysPath, admin, "").body + h.do("GET", webhooksPath, admin, "").body)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("a cancelled request left something behind:\n%s", diff)
	}
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("log: %s", log)
	}
}

func TestClosedStore(t *testing.T) {
	log := new(testlog.Book)
	h := serve(t, storageapi.Config{Logger: log.Logger()})
	admin := h.admin(alice)
	if err := h.api.Close(); err != nil {
		t.Fatal(err)
	}
	if got := h.do("POST", keysPath, admin, newKey).want(500, "INTERNAL_ERROR"); got.body != internalError {
		t.Errorf("got %s", got.body)
	}
	_, _, err := h.api.Keys.Create(t.Context(), alice, apikeys.CreateParams{Name: "a", Scopes: scopes.Specified()})
	if !errors.Is(err, store.ErrClosed) {
		t.Errorf("Create: got error %v, want store.ErrClosed", err)
	}
	err = h.api.Webhooks.Publish(t.Context(), webhooks.Event{Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}})
	if !errors.Is(err, store.ErrClosed) {
		t.Errorf("Publish: got error %v, want store.ErrClosed", err)
	}
}
