package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// checkRefusal checks that err is answered with 400, and that its text is safe to show to clients.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	if len(input.InvalidFields(err)) == 0 {
		t.Fatalf("got error %v, want one that is answered 400", err)
	}
	if text := err.Error(); len(text) > 2000 || !utf8.ValidString(text) {
		t.Fatalf("unfit to be shown: %q", text)
	}
}

func FuzzExpiry(f *testing.F) {
	for _, seed := range []string{"2027-01-01", "2027-01-01T00:00:00Z", "2027-01-01T00:00:00.5+01:00", "9999-12-31T23:59:59-23:59", "0001-01-01", "never", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		at, err := expiryAtNoon(t, s)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		if !at.After(noon) || at.Year() > 9999 || at.Location() != time.UTC || at.Nanosecond()%1e6 != 0 {
			t.Fatalf("%q: got %v", s, at)
		}
		text, _ := timestamp(at).MarshalJSON()
		if again, err := expiryAtNoon(t, strings.Trim(string(text), `"`)); err != nil || !again.Equal(at) {
			t.Fatalf("%q: got %v, then %v, %v", s, at, again, err)
		}
	})
}

// addBodies adds the seeds, and checks that they use every field.
func addBodies(f *testing.F, fields []field, seeds ...string) {
	f.Helper()
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	for _, one := range fields {
		if !strings.Contains(strings.Join(seeds, "\n"), `"`+one.name+`":`) {
			f.Errorf("no seed has the field %q", one.name)
		}
	}
}

// checkStrict checks that encoding/json, which is less strict, decodes an accepted body to an
// object with only the given fields, and returns the object.
func checkStrict(t *testing.T, data []byte, fields []field) map[string]any {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil || object == nil {
		t.Fatalf("%q: accepted, but is no object: %v", data, err)
	}
	for name := range object {
		if !slices.ContainsFunc(fields, func(one field) bool { return one.name == name }) {
			t.Fatalf("%q: accepted with field %q", data, name)
		}
	}
	return object
}

func FuzzKeyBody(f *testing.F) {
	addBodies(f, keyFields(nil, new(apikeys.CreateParams)),
		`{"name":"a","scopes":["files:read"]}`,
		`{"name":"a","scopes":["files:read"],"resources":["b","a"],"labels":{"team":"a","b":null},"allowedNetworks":["192.0.2.0/24","::1"],"rateLimit":60}`,
		`{"name":"a","scopes":["files:read"],"resources":[],"labels":null,"allowedNetworks":["192.0.2.1/24"],"rateLimit":1000001}`,
		`{"name":"a","scopes":["files:read"],"resources":null,"labels":{"":1},"allowedNetworks":[],"rateLimit":0}`,
		`{"name":"a","scopes":["files:read","files:read"],"expiresAt":"2027-01-01"}`,
		`{"name":"\ud83d\ude00","scopes":["account:read"],"expiresAt":null}`,
		`{"name":"\ud83d","scopes":[]}`,
		`{"name":"","scopes":[]}`,
		`{"n\u0061me":"a","name":"b"}`,
		`{"Name":"a","scopes":null} {}`,
		`[[[[`, `{}`, ``,
	)
	f.Fuzz(func(t *testing.T, data []byte) {
		var params apikeys.CreateParams
		fields := keyFields(nil, &params)
		err := decodeObject(data, fields...)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		checkStrict(t, data, fields)
		keys := keysAtNoon(t)
		_, _, err = keys.Create(t.Context(), "acct", params)
		if wrong := keys.Validate(params); (err == nil) != (len(wrong) == 0) || !cmp.Equal(wrong, input.InvalidFields(err)) {
			t.Fatalf("%q: Validate says %v, Create %v", data, wrong, err)
		}
	})
}

// An accepted change of a key must have exactly the fields that were sent, and its result must be
// valid for a new key.
func FuzzKeyUpdateBody(f *testing.F) {
	addBodies(f, keyPatch(new(apikeys.UpdateParams)),
		`{}`, `{"name":"b","enabled":false,"expiresAt":"2027-01-01","labels":{"team":"a","old":null}}`, `{"expiresAt":null,"labels":{}}`,
		`{"enabled":null}`, `{"labels":null}`, `{"labels":{"a":1}}`, `{"resources":["a"]}`, `{"expiresAt":"2000-01-01"}`, ``,
	)
	f.Fuzz(func(t *testing.T, data []byte) {
		var params apikeys.UpdateParams
		fields := keyPatch(&params)
		if err := decodeObject(data, fields...); err != nil {
			checkRefusal(t, err)
			return
		}
		object := checkStrict(t, data, fields)
		for name, given := range map[string]bool{"name": params.Name != nil, "enabled": params.Enabled != nil, "expiresAt": params.ExpiresAt != nil} {
			if value, sent := object[name]; sent != given || sent && value == nil && name != "expiresAt" {
				t.Fatalf("%q: %s sent %v, given %v", data, name, sent, given)
			}
		}
		keys := keysAtNoon(t)
		made, _, err := keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "a", Scopes: scopes.Of(scopes.FilesRead), Labels: map[string]string{"old": "a"}})
		if err != nil {
			t.Fatal(err)
		}
		key, err := keys.Update(t.Context(), "acct", made.ID, params)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		create := apikeys.CreateParams{Name: key.Name, Scopes: key.Scopes, ExpiresAt: key.ExpiresAt, Labels: key.Labels.Map()}
		if wrong := keys.Validate(create); len(wrong) > 0 || key.Scopes != made.Scopes || params.Enabled != nil && *params.Enabled == key.Disabled {
			t.Fatalf("%q: the changed key %+v could not be created: %v", data, key, wrong)
		}
	})
}

func FuzzWebhookBody(f *testing.F) {
	offered, err := webhooks.New(memory.New(), webhooks.Config{Events: alerts.Events()})
	if err != nil {
		f.Fatal(err)
	}
	addBodies(f, withThresholds(f, memory.New(), offered).webhookFields(new(webhooks.CreateParams)),
		`{"url":"https://example.com","events":["balance.low"],"resources":["b"],"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw","headers":{"X-Team":{"value":"a"},"Authorization":{"value":"Bearer 12345678","secret":true}},"signatures":["v1","v1a"]}`,
		`{"url":"https://example.com","events":["*"],"signatures":["v2"]}`, `{"url":"https://example.com","events":["*","*"],"signatures":null}`,
		`{"url":"https://example.com","events":["balance.low"],"resources":[" "],"secret":"short","headers":{"Host":{"value":"a"},"X-A":{"value":"1","secret":true}}}`,
		`{"url":"https://example.com","events":["balance.low"],"resources":null,"secret":null,"headers":{"X-A":null,"x-a":{"value":1}}}`,
		`{"url":"https://example.com/h?a&b","events":["balance.low"],"balanceThreshold":"0.5"}`,
		`{"url":"https://example.com","events":["files.expiring","files.expiring"],"balanceThreshold":null}`,
		`{"url":"https://example.com","events":["nope"],"balanceThreshold":1}`,
		`{"url":1,"events":{}}`,
		`{"url":"","events":[]}`,
		`{"events":[null]}`,
		`{}`, ``,
	)
	f.Fuzz(func(t *testing.T, data []byte) {
		var params webhooks.CreateParams
		store := memory.New()
		hooks, err := webhooks.New(store, webhooks.Config{Events: alerts.Events()})
		if err != nil {
			t.Fatal(err)
		}
		fields := withThresholds(t, store, hooks).webhookFields(&params)
		if err := decodeObject(data, fields...); err != nil {
			checkRefusal(t, err)
			return
		}
		checkStrict(t, data, fields)
		_, err = hooks.Create(t.Context(), "acct", params)
		if wrong := hooks.Validate(params); (err == nil) != (len(wrong) == 0) || !cmp.Equal(wrong, input.InvalidFields(err)) {
			t.Fatalf("%q: Validate says %v, Create %v", data, wrong, err)
		}
	})
}

func FuzzCursor(f *testing.F) {
	for _, seed := range []string{encodeCursor(id.Key + someULID), encodeCursor(id.Webhook + someULID), id.Key + someULID, "a\n", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		last, valid := parseCursor(s, id.Key)
		if valid && (!id.Valid(id.Key, last) || encodeCursor(last) != s) {
			t.Fatalf("%q: got %q", s, last)
		}
	})
}

// anyone is a Verifier that accepts every key except the empty one and always returns the same
// caller.
type anyone auth.Principal

func (p anyone) Verify(_ context.Context, token string) (auth.Principal, error) {
	if token == "" {
		return auth.Principal{}, auth.ErrUnauthorized
	}
	return auth.Principal(p), nil
}

// FuzzServeHTTP checks that every request gets a response in the documented format.
func FuzzServeHTTP(f *testing.F) {
	store := memory.New()
	keys, err := apikeys.New(store, apikeys.Config{})
	if err != nil {
		f.Fatal(err)
	}
	hooks, err := webhooks.New(store, webhooks.Config{Events: alerts.Events()})
	if err != nil {
		f.Fatal(err)
	}
	authenticator, err := auth.New(anyone{Account: "acct", KeyID: "key_1", Scopes: scopes.Specified()}, auth.Config{})
	if err != nil {
		f.Fatal(err)
	}
	auditLog, err := audit.New(store, audit.Config{})
	if err != nil {
		f.Fatal(err)
	}
	api, err := New(Config{
		Keys:     keys,
		Webhooks: hooks,
		Alerts:   withThresholds(f, store, hooks).alerts,
		Audit:    auditLog,
		Attribute: func(r *http.Request, actor audit.Actor) context.Context {
			return audit.WithActor(r.Context(), actor)
		},
		Auth:   authenticator,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("POST", "/v2/api-keys", "", "Content-Type", "application/json", []byte(`{"name":"a","scopes":["files:read"]}`))
	f.Add("POST", "/v2/notifications/webhooks", "", "Content-Type", "application/json", []byte(`{"url":"https://example.com","events":["balance.low"]}`))
	f.Add("POST", "/v2/api-keys", "", "Idempotency-Key", "a", []byte(`{"name":"a","scopes":["files:read"]}`))
	f.Add("PATCH", "/v2/api-keys/key_"+someULID, "", "If-Match", `"a", W/"b"`, []byte(`{"name":"a"}`))
	f.Add("POST", "/v2/api-keys/key_"+someULID+"/rotate", "", "Content-Type", "application/json", []byte(`{"graceSeconds":1e3}`))
	f.Add("GET", "/v2/api-keys", "limit=2&cursor=a", "Accept", "*/*", []byte(nil))
	f.Add("HEAD", "/v2/notifications/webhooks", "limit=2;", "Api-Key", "", []byte(nil))
	f.Add("DELETE", "/v2/api-keys/key_"+someULID, "", "Api-Key", "x", []byte(nil))
	f.Add("DELETE", "/v2/notifications/webhooks/%2e%2e", "", "", "", []byte(nil))
	f.Add("PATCH", "/v2/notifications/webhooks/wh_"+someULID, "", "If-Match", `"a", W/"b"`, []byte(`{"active":false,"balanceThreshold":null}`))
	f.Add("POST", "/v2/notifications/webhooks/wh_"+someULID+"/rotate-secret", "", "Content-Type", "application/json", []byte(`{"graceSeconds":1e3}`))
	f.Add("POST", "/v2/notifications/webhooks/wh_"+someULID+"/test", "", "", "", []byte(nil))
	f.Add("GET", "/v2/notifications/webhooks/wh_"+someULID+"/deliveries", "state=dead&from=2020-01-01", "", "", []byte(nil))
	f.Add("GET", "/v2/audit-log", "target=key_"+someULID+"&action=key.created&since=2020-01-01&until=2021-01-01&cursor=a", "", "", []byte(nil))
	f.Add("GET", "/v2/notifications/events", "type=balance.low&since=2020-01-01&cursor=a", "", "", []byte(nil))
	f.Add("GET", "/v2/notifications/webhooks/wh_"+someULID+"/deliveries/%00/body", "", "", "", []byte(nil))
	f.Add("POST", "/v2/notifications/webhooks/wh_"+someULID+"/deliveries/%00/redeliver", "", "", "", []byte(nil))
	f.Add("POST", "/v2/notifications/webhooks/wh_"+someULID+"/recoveries", "", "Content-Type", "application/json", []byte(`{"states":["dead"]}`))
	f.Add("POST", "/v2/api-keys", "", "Authorization", "Bearer x", []byte(`{"name":"a","scopes":["files:read"],"resources":["a"],"labels":{"b":"c"},"allowedNetworks":["192.0.2.0/24"],"rateLimit":60}`))
	f.Add("PATCH", "/v2/api-keys/key_"+someULID, "", "Content-Type", "application/json", []byte(`{"enabled":false,"expiresAt":null,"labels":{"b":null}}`))
	f.Add("GET", "/v2/api-keys/key_"+someULID+"/refusals", "", "", "", []byte(nil))
	f.Add("POST", "/v2/notifications/webhooks", "", "Content-Type", "application/json", []byte(`{"url":"https://example.com","events":["balance.low"],"resources":["a"],"headers":{"X-Token":{"value":"12345678","secret":true}}}`))
	f.Add("PATCH", "/v2/notifications/webhooks/wh_"+someULID, "", "Content-Type", "application/json", []byte(`{"resources":null,"paused":true,"headers":{"X-Token":null}}`))
	f.Add("POST", "/v2/notifications/webhooks/wh_"+someULID+"/test", "", "Content-Type", "application/json", []byte(`{"type":"balance.low"}`))
	f.Add("OPTIONS", "*", "", "", "", []byte(nil))
	f.Add("GET", "//v2/../v2/api-keys/%zz", "", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, method, path, query, name, value string, body []byte) {
		r := httptest.NewRequest("POST", "/", strings.NewReader(string(body)))
		r.Method, r.RequestURI = method, path
		r.URL = &url.URL{Path: path, RawPath: path, RawQuery: query}
		if unescaped, err := url.PathUnescape(path); err == nil {
			r.URL.Path = unescaped
		}
		r.Header.Set(auth.HeaderName, "any")
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		checkAnswer(t, w.Result(), w.Body.Bytes())
	})
}

func checkAnswer(t *testing.T, response *http.Response, body []byte) {
	t.Helper()
	code := response.StatusCode
	if code == http.StatusNoContent {
		if len(body) > 0 {
			t.Fatalf("204 with a body: %q", body)
		}
		return
	}
	if got := response.Header.Get("Content-Type"); got != "application/json; charset=utf-8" || !json.Valid(body) {
		t.Fatalf("%d %q with body %q", code, got, body)
	}
	if code < 400 {
		return
	}
	var failure struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(body, &failure); err != nil || failure.Error.Code == "" || failure.Error.Message == "" || code >= 500 {
		t.Fatalf("%d with body %q", code, body)
	}
}

// An accepted filter must be valid for the service and use every given parameter.
func FuzzKeyFilter(f *testing.F) {
	for _, seed := range []string{
		"name=deploy&scope=files:read&scope=account%3Aread&unusedSince=2026-01-31", "name=%ff", "name=", "name=a&name=b",
		"scope=nope", "scope=", "unusedSince=now", "unusedSince=2026-01-31T12:00:00%2B01:00&limit=1", "a;b", "%zz",
		"label=team=data&label=env=a=b", "label=a", "label==a", "label=a=b&label=a=c",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		filter, err := parsed(query, func(values url.Values) (apikeys.KeyQuery, error) { return parseKeyQuery(values, nil) })
		if err != nil {
			checkRefusal(t, err)
			return
		}
		given, err := url.ParseQuery(query)
		if err != nil || (filter.Name != "") != given.Has("name") || !filter.Scopes.IsEmpty() != (len(given["scope"]) > 0) || (len(filter.Labels) > 0) != given.Has("label") || filter.UnusedSince.IsZero() && given.Has("unusedSince") {
			t.Fatalf("%q: got %+v, %v", query, filter, err)
		}
		if _, err := keysAtNoon(t).List(t.Context(), "acct", filter); err != nil {
			t.Fatalf("%q: %v", query, err)
		}
	})
}
