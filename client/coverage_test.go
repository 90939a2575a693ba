package client_test

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/client"
	"github.com/storageapi/storageapi/internal/testhook"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

const account = "acct_1"

// A service is a running host and a client with a key that has all scopes.
type service struct {
	api    *storageapi.Handler
	base   string
	key    string
	client *client.Client

	mu   sync.Mutex
	seen []string // the method and path of each request that succeeded
}

func newService(t *testing.T) *service {
	t.Helper()
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	testhook.SetNetwork(api.Webhooks, testhook.Network{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, receiver.Listener.Addr().String())
	}})
	s := &service{api: api}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := &statusWriter{ResponseWriter: w}
		api.ServeHTTP(status, r)
		if status.status < 300 {
			s.mu.Lock()
			s.seen = append(s.seen, r.Method+" "+r.URL.Path)
			s.mu.Unlock()
		}
	}))
	_, token, err := api.Keys.Create(t.Context(), account, apikeys.CreateParams{Name: "admin", Scopes: scopes.Specified()})
	if err != nil {
		t.Fatal(err)
	}
	s.base, s.key = server.URL+"/v2", token.Reveal()
	s.client = s.with(t, s.key)
	ran := make(chan error, 1)
	go func() { ran <- api.Run(context.Background()) }()
	t.Cleanup(func() {
		server.Close()
		if err := api.Close(); err != nil {
			t.Error(err)
		}
		<-ran
		receiver.Close()
	})
	return s
}

// with returns a client with another key.
func (s *service) with(t *testing.T, key string) *client.Client {
	t.Helper()
	c, err := client.New(s.base, key, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// publish publishes an event and returns its ID.
func (s *service) publish(t *testing.T) string {
	t.Helper()
	id := s.api.Webhooks.NewEventID()
	if err := s.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: account, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
		t.Fatal(err)
	}
	return id
}

// must returns the result of a call that must succeed.
func must[T any](t *testing.T) func(T, error) T {
	return func(result T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
}

// collect returns all items of an iterator that must not fail.
func collect[T any](t *testing.T, items iter.Seq2[T, error]) (list []T) {
	t.Helper()
	for item, err := range items {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, item)
	}
	return list
}

// TestClient_EveryOperation_HasAMethod calls the client's methods on a mounted handler. Each
// operation of the handler's OpenAPI document must succeed at least once.
func TestClient_EveryOperation_HasAMethod(t *testing.T) {
	s := newService(t)
	c, ctx := s.client, t.Context()

	made := must[client.Key](t)(c.CreateKey(ctx, client.CreateKey{Name: "ci", Scopes: []string{"files:read"}}))
	if keys := collect(t, c.Keys(ctx, client.KeyQuery{Name: "CI", Scopes: []string{"files:read"}})); len(keys) != 1 || keys[0].ID != made.ID {
		t.Errorf("Keys: %v", keys)
	}
	read := must[client.Key](t)(c.Key(ctx, made.ID))
	if read.ETag == "" || !read.Value.IsZero() || made.Value.IsZero() {
		t.Errorf("ETag %q, value shown at creation %v, later %v", read.ETag, !made.Value.IsZero(), !read.Value.IsZero())
	}
	if renamed := must[client.Key](t)(c.UpdateKey(ctx, made.ID, client.UpdateKey{
		Name: client.Some("cd"), Labels: map[string]client.Opt[string]{"team": client.Some("a")}, ExpiresAt: client.Some(time.Now().Add(time.Hour)),
	}, client.IfMatch(read.ETag))); renamed.Name != "cd" || !renamed.Enabled || renamed.Labels["team"] != "a" || renamed.ExpiresAt.IsZero() {
		t.Errorf("UpdateKey: %+v", renamed)
	}
	rotated := must[client.Key](t)(c.RotateKey(ctx, made.ID, client.Rotation{}))
	own := s.with(t, rotated.Value.Reveal())
	if self := must[client.OwnKey](t)(own.OwnKey(ctx)); self.ID != made.ID || self.Replaced {
		t.Errorf("OwnKey: %+v", self)
	}
	if err := own.RevokeOwnKey(ctx); err != nil {
		t.Error(err)
	}
	second := must[client.Key](t)(c.CreateKey(ctx, client.CreateKey{
		Name: "ci", Scopes: []string{"files:read"}, Resources: []string{"env-1"}, AllowedNetworks: []string{"127.0.0.1", "::1"}, RateLimit: 60,
	}))
	limited := s.with(t, second.Value.Reveal())
	if self := must[client.OwnKey](t)(limited.OwnKey(ctx)); len(self.Resources) != 1 {
		t.Errorf("OwnKey: %+v", self)
	}
	if _, err := limited.Key(ctx, made.ID); err == nil {
		t.Error("a key without account:read has read a key")
	}
	if refused := must[[]client.Refusal](t)(c.Refusals(ctx, second.ID)); len(refused) != 1 || refused[0].Missing != "account:read" || refused[0].Network == "" || refused[0].At.IsZero() {
		t.Errorf("Refusals: %+v", refused)
	}
	if second = must[client.Key](t)(c.Key(ctx, second.ID)); len(second.Resources) != 1 || len(second.AllowedNetworks) != 2 || second.RateLimit != 60 || second.LastUsedFrom == "" || len(second.NetworksUsed) != 1 {
		t.Errorf("Key: %+v", second)
	}
	if err := c.DeleteKey(ctx, second.ID); err != nil {
		t.Error(err)
	}

	hook := must[client.Webhook](t)(c.CreateWebhook(ctx, client.CreateWebhook{URL: "https://example.com/", Events: []string{"balance.low"}, BalanceThreshold: "12.5"}))
	if hooks := collect(t, c.Webhooks(ctx)); len(hooks) != 1 || hooks[0].BalanceThreshold != "12.5" || hook.Secret.IsZero() {
		t.Errorf("Webhooks: %+v", hooks)
	}
	if hook = must[client.Webhook](t)(c.Webhook(ctx, hook.ID)); hook.ETag == "" {
		t.Error("Webhook has no ETag")
	}
	if hook = must[client.Webhook](t)(c.UpdateWebhook(ctx, hook.ID, client.UpdateWebhook{BalanceThreshold: client.Null[string]()}, client.IfMatch(hook.ETag))); hook.BalanceThreshold != "" {
		t.Errorf("UpdateWebhook: %+v", hook)
	}
	if hook = must[client.Webhook](t)(c.UpdateWebhook(ctx, hook.ID, client.UpdateWebhook{Resources: client.Some([]string{"env-1"})})); len(hook.Resources) != 1 {
		t.Errorf("UpdateWebhook: %+v", hook)
	}
	if hook = must[client.Webhook](t)(c.UpdateWebhook(ctx, hook.ID, client.UpdateWebhook{Resources: client.Null[[]string]()})); hook.Resources != nil {
		t.Errorf("UpdateWebhook: %+v", hook)
	}
	if hook = must[client.Webhook](t)(c.UpdateWebhook(ctx, hook.ID, client.UpdateWebhook{Signatures: client.Some([]string{"v1a"})})); len(hook.Signatures) != 1 || len(hook.PublicKeys) != 1 {
		t.Errorf("UpdateWebhook: %+v", hook)
	}
	paused := must[client.Webhook](t)(c.UpdateWebhook(ctx, hook.ID, client.UpdateWebhook{
		Paused: client.Some(true), Headers: map[string]client.Opt[client.Header]{"X-Token": client.Some(client.Header{Value: "gateway-token", Secret: true})},
	}))
	if !paused.Paused || !paused.Headers["X-Token"].Secret || paused.Headers["X-Token"].Value != "" {
		t.Errorf("UpdateWebhook: %+v", paused)
	}
	hook = must[client.Webhook](t)(c.UpdateWebhook(ctx, hook.ID, client.UpdateWebhook{
		Paused: client.Some(false), Headers: map[string]client.Opt[client.Header]{"X-Token": client.Null[client.Header]()},
	}))
	if hook.Paused || len(hook.Headers) > 0 {
		t.Errorf("UpdateWebhook: %+v", hook)
	}
	if hook = must[client.Webhook](t)(c.RotateWebhookSecret(ctx, hook.ID, client.Rotation{GraceSeconds: client.Some(0)})); hook.Secret.IsZero() {
		t.Error("RotateWebhookSecret shows no secret")
	}
	if tested := must[client.Tested](t)(c.TestWebhook(ctx, hook.ID, "balance.low")); tested.Attempt.Status != 200 {
		t.Errorf("TestWebhook: %+v", tested)
	}

	event := s.publish(t)
	body := must[[]byte](t)(c.EventBody(ctx, event))
	if same := must[[]byte](t)(c.DeliveryBody(ctx, hook.ID, event)); string(same) != string(body) || !strings.Contains(string(body), event) {
		t.Errorf("bodies: %s, %s", body, same)
	}
	if events := collect(t, c.Events(ctx, client.EventQuery{Webhook: hook.ID, Include: "body"})); len(events) != 1 || events[0].ID != event || !events[0].HasBody || string(events[0].Body) != string(body) {
		t.Errorf("Events: %+v", events)
	}
	if deliveries := collect(t, c.Deliveries(ctx, hook.ID, client.DeliveryQuery{States: []string{"pending", "delivered"}})); len(deliveries) != 1 || deliveries[0].EventID != event {
		t.Errorf("Deliveries: %+v", deliveries)
	}
	if again := must[client.Delivery](t)(c.Redeliver(ctx, hook.ID, event)); again.EventID != event {
		t.Errorf("Redeliver: %+v", again)
	}
	must[client.Delivery](t)(c.Delivery(ctx, hook.ID, event))
	if x := must[client.Explanation](t)(c.Explain(ctx, hook.ID, event)); x.State == "" || x.Summary == "" {
		t.Errorf("Explain: %+v", x)
	}
	recovery := must[client.Recovery](t)(c.CreateRecovery(ctx, hook.ID, client.CreateRecovery{States: []string{"dead"}}))
	must[client.Recovery](t)(c.Recovery(ctx, hook.ID, recovery.ID))
	if entries := collect(t, c.AuditLog(ctx, client.AuditQuery{Target: hook.ID, Actions: []string{"webhook.rotated"}})); len(entries) != 1 || entries[0].Actor.Kind != "key" {
		t.Errorf("AuditLog: %+v", entries)
	}
	if err := c.DeleteWebhook(ctx, hook.ID); err != nil {
		t.Error(err)
	}

	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(s.api.OpenAPI(), &document); err != nil {
		t.Fatal(err)
	}
	operations := 0
	for path, item := range document.Paths {
		template := regexp.MustCompile("^" + regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "[a-z]+_[0-9A-Z]{26}") + "$")
		for method := range item {
			if method == "parameters" {
				continue
			}
			operations++
			if !slices.ContainsFunc(s.seen, func(request string) bool {
				of, at, _ := strings.Cut(request, " ")
				return of == strings.ToUpper(method) && template.MatchString(at)
			}) {
				t.Errorf("no method of the client calls %s %s: add one, and a call to this test", method, path)
			}
		}
	}
	if operations < 20 {
		t.Errorf("%d operations found", operations)
	}
}

// A schema is an object schema of the OpenAPI document.
type schema struct {
	Type       any
	Properties map[string]json.RawMessage
	Items      *schema
}

// TestRecords_HaveTheMembersOfTheSchemas compares the client's records with the OpenAPI document. A
// new schema or member must be added to the client, too.
func TestRecords_HaveTheMembersOfTheSchemas(t *testing.T) {
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string
			Parameters  []map[string]string
		}
		Components struct {
			Schemas    map[string]schema
			Parameters map[string]struct{ Name, In string }
		}
	}
	text := newService(t).api.OpenAPI()
	if err := json.Unmarshal(withoutPathParameters(t, text), &document); err != nil {
		t.Fatal(err)
	}
	schemas := document.Components.Schemas
	schemas["Refusal"], schemas["ScopeUse"], schemas["NetworkUse"] = itemOf(t, schemas["Refusals"].Properties["data"]), *schemas["ScopesUsed"].Items, *schemas["NetworksUsed"].Items

	left := make(map[string]bool)
	for name, s := range schemas {
		left[name] = s.Type == "object" && !strings.HasSuffix(name, "Event") && !strings.HasPrefix(name, "BandwidthUse") && !strings.HasPrefix(name, "TransactionsUse")
	}
	left["Error"] = false                                                       // decoded by errorOf, which has a test
	left["Nothing"] = false                                                     // an empty body
	for _, name := range []string{"Labels", "LabelChanges", "HeaderSettings"} { // maps
		left[name] = false
	}
	left["SendTest"] = false // a parameter of TestWebhook
	left["Refusals"] = false // a list without pages
	for _, record := range []struct {
		of      any
		schemas []string
	}{
		{client.Key{}, []string{"Key", "CreatedKey", "RotatedKey"}},
		{client.OwnKey{}, []string{"OwnKey"}},
		{client.ScopeUse{}, []string{"ScopeUse"}},
		{client.NetworkUse{}, []string{"NetworkUse"}},
		{client.Refusal{}, []string{"Refusal"}},
		{client.Creator{}, []string{"Creator"}},
		{client.PreviousValue{}, []string{"PreviousValue"}},
		{client.CreateKey{}, []string{"CreateKey"}},
		{client.UpdateKey{}, []string{"UpdateKey"}},
		{client.Rotation{}, []string{"Rotation"}},
		{client.Webhook{}, []string{"Webhook", "CreatedWebhook", "RotatedWebhook"}},
		{client.CreateWebhook{}, []string{"CreateWebhook"}},
		{client.UpdateWebhook{}, []string{"UpdateWebhook"}},
		{client.Header{}, []string{"Header", "HeaderSetting"}},
		{client.Tested{}, []string{"Tested"}},
		{client.Attempt{}, []string{"Attempt"}},
		{client.Delivery{}, []string{"Delivery", "DeliverySummary"}},
		{client.Explanation{}, []string{"Explanation"}},
		{client.CreateRecovery{}, []string{"CreateRecovery"}},
		{client.Recovery{}, []string{"Recovery"}},
		{client.Event{}, []string{"Event"}},
		{client.AuditEntry{}, []string{"AuditEntry"}},
		{client.AuditSubject{}, []string{"AuditTarget", "AuditActor"}},
		{client.Page[client.Key]{}, []string{"KeyList", "WebhookList", "DeliveryList", "EventList", "AuditList"}},
	} {
		var want []string
		for _, name := range record.schemas {
			left[name] = false
			for member := range schemas[name].Properties {
				want = append(want, member)
			}
		}
		slices.Sort(want)
		if diff := gocmp.Diff(slices.Compact(want), members(record.of)); diff != "" {
			t.Errorf("%T (-schemas %v +record):\n%s", record.of, record.schemas, diff)
		}
	}
	for name, missing := range left {
		if missing {
			t.Errorf("no record of the client has the schema %s", name)
		}
	}

	// Queries have the parameters of their lists.
	queries := map[string]any{
		"listKeys": client.KeyQuery{}, "listWebhooks": struct{}{}, "listDeliveries": client.DeliveryQuery{},
		"listEvents": client.EventQuery{}, "listAuditLog": client.AuditQuery{},
	}
	for _, item := range document.Paths {
		for _, operation := range item {
			var want []string
			for _, reference := range operation.Parameters {
				if p := document.Components.Parameters[strings.TrimPrefix(reference["$ref"], "#/components/parameters/")]; p.In == "query" && p.Name != "limit" && p.Name != "cursor" {
					want = append(want, p.Name)
				}
			}
			query, known := queries[operation.OperationID]
			if !known && want != nil {
				t.Errorf("%s has the parameters %q, but the client has no query for it", operation.OperationID, want)
			}
			if !known {
				continue
			}
			slices.Sort(want)
			got := slices.DeleteFunc(members(query), func(name string) bool { return name == "limit" || name == "cursor" })
			if diff := gocmp.Diff(want, got, gocmp.Transformer("nil", func(s []string) string { return strings.Join(s, " ") })); diff != "" {
				t.Errorf("%s (-document +%T):\n%s", operation.OperationID, query, diff)
			}
		}
	}
}

// itemOf returns the schema of the items of an array.
func itemOf(t *testing.T, text []byte) schema {
	t.Helper()
	var array struct{ Items schema }
	if err := json.Unmarshal(text, &array); err != nil {
		t.Fatal(err)
	}
	return array.Items
}

// withoutPathParameters removes the parameters that all operations of a path share, since they are
// not operations themselves.
func withoutPathParameters(t *testing.T, text []byte) []byte {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	for _, item := range tree["paths"].(map[string]any) {
		delete(item.(map[string]any), "parameters")
	}
	text, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// members returns the sorted names of the JSON members of a struct.
func members(of any) (names []string) {
	for field := range reflect.TypeOf(of).Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); cmp.Or(name, "-") != "-" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
