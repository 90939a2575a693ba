package httpapi

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// withThresholds returns an api that parses request bodies as a service that offers balance.low
// does.
func withThresholds(tb testing.TB, store *memory.Store, hooks *webhooks.WebhookService) *api {
	tb.Helper()
	reports, err := alerts.New(store, hooks, alerts.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	return &api{webhooks: hooks, alerts: reports}
}

func FuzzWebhookUpdateBody(f *testing.F) {
	store := memory.New()
	hooks, err := webhooks.New(store, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		f.Fatal(err)
	}
	a := withThresholds(f, store, hooks)
	addBodies(f, a.webhookPatch(new(webhooks.UpdateParams)),
		`{}`, `{"url":"https://example.com/h?a&b","events":["balance.low"],"active":true,"balanceThreshold":"0.5"}`,
		`{"balanceThreshold":null}`, `{"events":[]}`, `{"active":null}`, `{"url":null}`, `{"active":"true"}`, `{"\u0061ctive":false}`, ``,
		`{"resources":["a"],"paused":true,"headers":{"X-Team":{"value":"a"},"Authorization":{"value":"Bearer 12345678","secret":true}}}`,
		`{"resources":["a"],"headers":{"X-Term":{"value":"a"},"Authorization":{"value":"Bearer 12345678","secret":true}}}`,
		`{"resources":null,"paused":false,"headers":{"X-Team":null,"Authorization":null}}`, `{"events":["*"],"signatures":["v1a"]}`, `{"signatures":[]}`, `{"pausedUntil":"9000-01-01T00:00:00Z"}`,
		`{"resources":[],"paused":false,"pausedUntil":"9000-01-01","headers":{"X-A":{"value":"","secret":null}}}`, `{"paused":null,"pausedUntil":null,"headers":null}`,
	)
	f.Fuzz(func(t *testing.T, data []byte) {
		var params webhooks.UpdateParams
		fields := a.webhookPatch(&params)
		err := decodeObject(data, fields...)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		object := checkStrict(t, data, fields)
		for name, given := range map[string]bool{
			"url": params.URL != nil, "events": params.Events != nil, "active": params.Active != nil, "balanceThreshold": params.Threshold != nil, "resources": params.Resources != nil,
		} {
			if value, sent := object[name]; sent != given || sent && value == nil && name != "balanceThreshold" && name != "resources" {
				t.Fatalf("%q: %s sent %v, given %v", data, name, sent, given)
			}
		}
		if headers, _ := object["headers"].(map[string]any); len(headers) > len(params.Headers) {
			t.Fatalf("%q: %d headers sent, given %v", data, len(headers), params.Headers)
		}
		made, err := hooks.Create(t.Context(), "acct", webhooks.CreateParams{URL: "https://example.com", Events: alerts.EventTypes(), Threshold: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = hooks.Delete(t.Context(), "acct", made.ID, webhooks.DeleteParams{}) }()
		asked := false
		params.If = func(_, _ webhooks.Webhook) error { asked = true; return nil }
		if _, err = hooks.Update(t.Context(), "acct", made.ID, params); err != nil {
			checkRefusal(t, err)
		}
		if asked != (err == nil) {
			t.Fatalf("%q: the condition was asked: %v; Update says %v", data, asked, err)
		}
	})
}

func FuzzRecoveryBody(f *testing.F) {
	addBodies(f, recoveryFields(new(webhooks.RecoverParams)),
		`{}`, `{"from":"2020-01-01","to":"2021-01-01T00:00:00+01:00","states":["dead","skipped","dead"]}`,
		`{"from":null,"to":null,"states":null}`, `{"states":[]}`, `{"states":["pending"]}`, `{"from":"0001-01-01"}`, `{"to":1}`, ``,
	)
	hooks, err := webhooks.New(memory.New(), webhooks.Config{Events: alerts.Events(), MaxPerAccount: -1})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var params webhooks.RecoverParams
		fields := recoveryFields(&params)
		err := decodeObject(data, fields...)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkStrict(t, data, fields)
		made, err := hooks.Create(t.Context(), "acct", webhooks.CreateParams{URL: "https://example.com", Events: alerts.EventTypes()})
		if err != nil {
			t.Fatal(err)
		}
		recovery, err := hooks.Recover(t.Context(), "acct", made.ID, params)
		if err != nil {
			checkRefusal(t, err)
		} else if len(recovery.States) < 1 || len(recovery.States) > 3 {
			t.Fatalf("%q: Recover takes %+v", data, recovery)
		}
	})
}

func FuzzEventQuery(f *testing.F) {
	for _, seed := range []string{
		"", "type=balance.low&type=a.b&from=2020-01-01&to=2020-01-01T00:00:01Z&limit=1", "since=2020-01-01&cursor=" + encodeCursor("oldest/12"),
		"cursor=" + encodeCursor("newest/12"), "cursor=" + encodeCursor("newest/"), "since=&from=&to=", "type=%00", "limit=%zz;",
	} {
		f.Add(seed)
	}
	hooks, err := webhooks.New(memory.New(), webhooks.Config{Events: alerts.Events()})
	if err != nil {
		f.Fatal(err)
	}
	if err := hooks.Publish(f.Context(), webhooks.Event{ID: "event", Account: "acct", Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, query string) {
		parsed, err := parsed(query, parseEventQuery)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if parsed.Limit < 1 || parsed.Limit > 100 || len(parsed.After) > 128 || len(parsed.Types) > webhooks.MaxEventTypes {
			t.Fatalf("%q: %+v", query, parsed)
		}
		page, err := hooks.ListEvents(t.Context(), "acct", parsed)
		if err != nil || parsed.OldestFirst == (page.Resume == "") {
			t.Fatalf("%q: Events says %+v, %v", query, page, err)
		}
		after := page.Resume
		again, valid := parseListCursor(encodeCursor("oldest/"+after), "oldest")
		if after != "" && (!valid || again != after) {
			t.Fatalf("%q: cursor %q, then %q", query, after, again)
		}
	})
}

func FuzzDeliveryQuery(f *testing.F) {
	webhookID := id.Webhook + someULID
	for _, seed := range []string{
		"", "state=dead&state=pending&from=2020-01-01&to=2020-01-01T00:00:00Z&limit=1", "cursor=" + encodeCursor(webhookID+"/12"),
		"cursor=" + encodeCursor(webhookID+"/"), "cursor=" + encodeCursor(id.Webhook), "cursor=" + encodeCursor(webhookID+"/\x00"),
		"state=&from=&to=", "failed=true&state=dead", "from=2020-01-01T00:00:00+01:00", "limit=%zz;",
	} {
		f.Add(seed)
	}
	hooks, err := webhooks.New(memory.New(), webhooks.Config{Events: alerts.Events()})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, query string) {
		parsed, err := parsed(query, func(values url.Values) (webhooks.DeliveryQuery, error) { return parseDeliveryQuery(values, webhookID) })
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if parsed.Limit < 1 || parsed.Limit > 100 || len(parsed.After) > 128 {
			t.Fatalf("%q: %+v", query, parsed)
		}
		for _, bound := range []time.Time{parsed.From, parsed.To} {
			if !bound.IsZero() && bound.Year() < 1969 {
				t.Fatalf("%q: %+v", query, parsed)
			}
		}
		if again, valid := parseListCursor(encodeCursor(webhookID+"/"+parsed.After), webhookID); parsed.After != "" && (!valid || again != parsed.After) {
			t.Fatalf("%q: cursor %q, then %q", query, parsed.After, again)
		}
		if _, err := hooks.ListDeliveries(t.Context(), "acct", webhookID, parsed); !errors.Is(err, apierr.ErrNotFound) {
			t.Fatalf("%q: Deliveries says %v", query, err)
		}
	})
}
