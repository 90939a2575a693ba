package httpapi

import (
	"encoding/json"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/webhooks"
)

func TestParseQuery_UnknownParameter_ListsKnownOnes(t *testing.T) {
	for _, test := range []struct {
		query string
		names []string
		want  string
	}{
		{"unused_since=2020-01-01", []string{"name", "unusedSince"}, `query has an unknown parameter "unused_since"; the parameters are name, unusedSince`},
		{"limit=1&LIMIT=0", []string{"limit"}, `query has an unknown parameter "LIMIT"; the parameters are limit`},
		{"limit=1", nil, `query has an unknown parameter "limit"; this path has none`},
		{"=1", nil, `query has an unknown parameter ""; this path has none`},
		{strings.Repeat("a", 99), nil, `query has an unknown parameter "` + strings.Repeat("a", 32) + `"; this path has none`},
	} {
		_, err := parseQuery(test.query, test.names)
		if err == nil || err.Error() != test.want {
			t.Errorf("%q: got error %v, want %s", test.query, err, test.want)
		}
	}
	for _, query := range []string{"", "&", "limit=1", "limit"} {
		if _, err := parseQuery(query, []string{"limit"}); err != nil {
			t.Errorf("%q: got error %v, want none", query, err)
		}
	}
}

// The test compares the route table with the OpenAPI document.
func TestRoutes_QueryParameters_MatchOpenAPI(t *testing.T) {
	type parameter struct {
		Ref string `json:"$ref"`
	}
	var document struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct {
			Parameters map[string]struct{ Name, In string }
		}
	}
	data, err := os.ReadFile("../../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	got, want := make(map[string][]string), make(map[string][]string)
	for _, r := range new(api).routes() {
		route := r.method + " " + r.pattern
		got[route] = append([]string{}, r.query...)
		var operation struct {
			Parameters []parameter
		}
		if err := json.Unmarshal(document.Paths[r.pattern][strings.ToLower(r.method)], &operation); err != nil {
			t.Fatalf("%s: %v", route, err)
		}
		want[route] = []string{}
		for _, p := range operation.Parameters {
			p := document.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
			if p.In == "query" {
				want[route] = append(want[route], p.Name)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("query parameters of routes (-document +routes):\n%s", diff)
	}
}

// Every parameter of the query is invalid, but the error must be about the number of parameters.
func TestParseQuery_TooManyParameters_AreRefusedUnparsed(t *testing.T) {
	_, err := parseQuery(strings.Repeat("%zz&", 9_990), []string{"action"})
	if err == nil || !strings.Contains(err.Error(), "at most 200 parameters") {
		t.Errorf("got error %v, want one about the number of parameters", err)
	}
	if _, err := parseQuery(strings.Repeat("action=key.created&", maxParameters-1), []string{"action"}); err != nil {
		t.Errorf("got error %v of %d parameters, want none", err, maxParameters-1)
	}
}

// A store compares each row with these values, so the parsers must drop repeated values.
func TestParsers_RepeatedParameter_IsDeduplicated(t *testing.T) {
	values := url.Values{
		"action": slices.Repeat([]string{"key.created", "key.deleted"}, 100),
		"state":  slices.Repeat([]string{"dead", "pending"}, 100),
		"type":   slices.Repeat([]string{"balance.low"}, 100),
	}
	auditLog, err := parseAuditQuery(values)
	if want := []audit.Action{audit.KeyCreated, audit.KeyDeleted}; err != nil || !slices.Equal(auditLog.Actions, want) {
		t.Errorf("got actions %q, %v, want %q", auditLog.Actions, err, want)
	}
	deliveries, err := parseDeliveryQuery(values, id.Webhook+someULID)
	if want := []webhooks.DeliveryState{webhooks.Dead, webhooks.Pending}; err != nil || !slices.Equal(deliveries.States, want) {
		t.Errorf("got states %q, %v, want %q", deliveries.States, err, want)
	}
	if want := []webhooks.EventType{"balance.low"}; !slices.Equal(deliveries.Types, want) {
		t.Errorf("got types %q of deliveries, want %q", deliveries.Types, want)
	}
	events, err := parseEventQuery(values)
	if want := []webhooks.EventType{"balance.low"}; err != nil || !slices.Equal(events.Types, want) {
		t.Errorf("got types %q, %v, want %q", events.Types, err, want)
	}
}
