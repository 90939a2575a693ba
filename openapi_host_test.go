package storageapi_test

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// A teamCreated is a host's event payload whose values are difficult to document.
type teamCreated struct {
	TeamID string         `json:"teamId"`
	Size   float64        `json:"size"`
	Tags   []string       `json:"tags"`
	Owner  map[string]any `json:"owner"`
}

func (teamCreated) EventType() webhooks.EventType { return "teams.created" }

// hostConfig returns a Config that sets every option that affects the document.
func hostConfig() storageapi.Config {
	hard := `"quoted" <b> & within 15 seconds, sak_, ` + "`files.expiring`, `account:read` for all others."
	return storageapi.Config{
		Store:     memory.New(),
		Prefix:    "/api/v1",
		Scopes:    []scopes.Declaration{{Scope: "teams:read", Description: "List teams " + hard}, {Scope: "teams:write", Description: "Change teams"}},
		RateLimit: auth.RateLimit{PerSecond: 2.5, Burst: 10},
		Bearer:    true,
		Realm:     "Acme (files)",
		Keys:      apikeys.Config{Prefix: "acme", MaxPerAccount: 7},
		Alerts:    alerts.Config{ApproachingRatios: []float64{0.5, 0.9}, FileLeads: []time.Duration{24 * time.Hour, 90 * time.Minute}},
		Webhooks: webhooks.Config{
			SignatureHeader: "X-Acme-Signature", MaxPerAccount: -1, Outbound: webhooks.Outbound{Timeout: 5 * time.Second}, Retry: webhooks.RetryPolicy{DisableAfter: 48 * time.Hour},
			Events: []webhooks.EventDeclaration{
				{Type: "teams.created", Description: "Team created " + hard, Scope: "teams:read", Example: teamCreated{
					TeamID: hard, Tags: []string{"a"}, Owner: map[string]any{"webhook.test": map[string]any{}, "WebhookTestEvent": true, "none": nil},
				}},
				{Type: "teams_created.x", Description: "With a schema", Scope: "account:read", Schema: json.RawMessage(`{"type": "object", "properties": {"webhook.test": {}, "WebhookTestEvent": {}}}`)},
				{Type: "teams.created_x", Description: "Of a similar name", Scope: "files:read", Schema: json.RawMessage(`{}`)},
			},
		},
	}
}

func newHost(t *testing.T, config storageapi.Config) *storageapi.Handler {
	t.Helper()
	api, err := storageapi.NewHandler(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api
}

func TestOpenAPI_HostConfig_IsReflected(t *testing.T) {
	api := newHost(t, hostConfig())
	text := string(api.OpenAPI())
	var d document
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(append(scopes.Specified().Names(), "teams:read", "teams:write"), d.Components.Schemas.Scope.Enum); diff != "" {
		t.Errorf("scopes (-want +got):\n%s", diff)
	}
	var types []string
	for _, eventType := range api.Webhooks.EventTypes() {
		types = append(types, string(eventType))
		if d.Webhooks[eventType] == nil {
			t.Errorf("no webhook %s", eventType)
		}
	}
	if diff := cmp.Diff(types, d.Components.Schemas.EventType.Enum); diff != "" {
		t.Errorf("event types (-want +got):\n%s", diff)
	}
	for path := range d.Paths {
		if !strings.HasPrefix(path, "/api/v1/") {
			t.Errorf("path %s", path)
		}
	}
	for _, want := range []string{
		`"name": "X-Acme-Signature"`, "a prefix, `acme`, an underscore", "An account can have 7 keys.", "within 5 seconds", "had failed for 2 days",
		"Sent once a period for each of these parts of the limit: 50%, 90%.", "Sent so long before each file expires: 1 day, 5400 seconds.",
		"an API key can make 2.5 requests a second, 10 of them at once; all keys of an account together can make 4 times as many. Every response",
		"`files:read` for `files.expiring`, `teams:read` for `teams.created`, `files:read` for `teams.created_x`, `account:read` for all others.",
		`- ` + "`teams:write`" + `: Change teams`, `"TeamsCreatedXEvent"`, `"TeamsCreatedX2Event"`, `"onTeamsCreated"`,
		`"security": [{"ApiKey": []}, {"Bearer": []}]`, `"security": [{"ApiKey": ["account:read"]}, {"Bearer": ["account:read"]}]`,
		`[{"ApiKey": ["files:read"]}, {"Bearer": ["files:read"]}, {"ApiKey": ["teams:read"]}, {"Bearer": ["teams:read"]}, {"ApiKey": ["account:read"]}, {"Bearer": ["account:read"]}]`,
		`"scheme": "bearer"`, `realm=\"Acme (files)\"`,
		`"teamId":"\"quoted\" <b> & within 15 seconds, sak_`, // unchanged from the declaration
		`"size":{"format":"double","type":"number"}`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not have %s", want)
		}
	}
	for _, not := range []string{"X-Service-Signature", `realm=\"storageapi\"`, "sak_0", "An account can have 100 webhooks", "/v2/", "5 days"} {
		if strings.Contains(text, not) {
			t.Errorf("it has %s", not)
		}
	}
	api.OpenAPI()[0] = 'x'
	if api.OpenAPI()[0] != '{' {
		t.Error("a caller changed the document")
	}
}

// The document of a default Config equals openapi.json byte for byte.
func TestOpenAPI_DefaultConfig_EqualsPublishedDocument(t *testing.T) {
	file, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(file), string(defaultDocument(t))); diff != "" {
		t.Errorf("document (-openapi.json +default Config):\n%s", diff)
	}
}

// The test disables all optional limits.
func TestOpenAPI_WithoutLimits(t *testing.T) {
	api := newHost(t, storageapi.Config{
		Store: memory.New(), Prefix: "/", Keys: apikeys.Config{MaxPerAccount: -1}, RateLimit: auth.RateLimit{PerSecond: 1, PerAccount: -1},
		Webhooks: webhooks.Config{Retry: webhooks.RetryPolicy{DisableAfter: -1}}, Alerts: alerts.Config{ApproachingRatios: []float64{}},
	})
	text := string(api.OpenAPI())
	for _, want := range []string{"This service does not send it by itself.", "an API key can make 1 requests a second. Every response", "the receiver responded 410."} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not have %s", want)
		}
	}
	if not := []string{"An account can have 1,000 keys", "80%", "days. Null"}; slices.ContainsFunc(not, func(s string) bool { return strings.Contains(text, s) }) {
		t.Errorf("it has one of %q", not)
	}
	var d document
	if err := json.Unmarshal([]byte(text), &d); err != nil || d.Paths["/api-keys"] == nil {
		t.Errorf("%v, %d paths", err, len(d.Paths))
	}
}

// Event types with similar names must get unique names in the document, because decoders silently
// drop duplicate names.
func TestOpenAPI_SimilarEventTypes_HaveUniqueNames(t *testing.T) {
	config := storageapi.Config{
		Store: memory.New(), Prefix: "/sak_api",
		Keys: apikeys.Config{Prefix: "acme"}, Webhooks: webhooks.Config{SignatureHeader: "X-sak_a"},
	}
	for _, eventType := range []webhooks.EventType{
		"a.b", "a.b1", "a_.b", "a.b_1", "a.b_2", "a.b2", "a_.b_", "a.b3", "a.b4", "a.b5", "a.b6", "a.b7", "a.b12", "a__.b",
		"files.expiring_", "balance_.low", "webhook_.test",
	} {
		config.Webhooks.Events = append(config.Webhooks.Events, webhooks.EventDeclaration{
			Type: eventType, Description: "Of a similar name", Scope: "files:read", Schema: json.RawMessage(`{}`),
		})
	}
	text := string(newHost(t, config).OpenAPI())
	for _, of := range []string{`"operationId": "(\w+)"`, `\n?      "(\w+Event)": \{\n`} {
		seen := make(map[string]bool)
		for _, found := range regexp.MustCompile(of).FindAllStringSubmatch(text, -1) {
			if seen[found[1]] {
				t.Errorf("%s is there twice", found[1])
			}
			seen[found[1]] = true
		}
		if len(seen) < 7+len(config.Webhooks.Events) {
			t.Errorf("%s: %d found", of, len(seen))
		}
	}
	for _, want := range []string{`"/sak_api/api-keys"`, `"name": "X-sak_a"`} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not have %s", want)
		}
	}
}

var reference = regexp.MustCompile(`"\$ref": ?"#/components/(\w+)/(\w+)"`)

// TestOpenAPIOfAHostThatHides checks that hidden scopes and event types appear nowhere in the
// document, and that nothing else is missing.
func TestOpenAPIOfAHostThatHides(t *testing.T) {
	all := alerts.EventTypes()
	for _, test := range []struct {
		scopes []scopes.Scope
		events []webhooks.EventType
		types  []webhooks.EventType // offered
		not    []string
	}{
		{[]scopes.Scope{scopes.AggregatorsRead, scopes.AggregatorsWrite, scopes.EnvironmentsRead}, nil, all, []string{"aggregators:", "environments:read"}},
		{[]scopes.Scope{scopes.FilesRead}, nil, all[1:], []string{"files:read", "files.expiring", "FilesExpiring"}},
		{slices.Collect(scopes.Specified().Without(scopes.AccountRead).All()), nil, all[1:], []string{"files:", "secrets:", "files.expiring"}},
		{nil, []webhooks.EventType{alerts.TypeBalanceLow}, slices.Delete(slices.Clone(all), 1, 2), []string{"balance", "SUI", "Amount"}},
		{nil, all, nil, []string{"balance", "SUI", "files.expiring", "bandwidth.limit", "transactions.limit"}},
		{[]scopes.Scope{scopes.FilesRead, scopes.FilesRead}, []webhooks.EventType{all[5], all[5]}, all[1:5], []string{"files:read", "transactions.limit_reached"}},
	} {
		for _, own := range []bool{false, true} {
			config := storageapi.Config{Store: memory.New()}
			if own {
				config = hostConfig()
				config.Scopes[0].Description, config.Webhooks.Events = "List teams", config.Webhooks.Events[1:2]
			}
			config.HideScopes, config.Alerts.HideEvents = test.scopes, test.events
			api := newHost(t, config)
			text := string(api.OpenAPI())
			for _, not := range test.not {
				if at := strings.Index(text, not); at >= 0 {
					t.Errorf("hiding %v %v: it has %s", test.scopes, test.events, text[max(0, at-80):at+40])
				}
			}
			var d document
			var parts struct{ Components map[string]map[string]any }
			if err := errors.Join(json.Unmarshal([]byte(text), &d), json.Unmarshal([]byte(text), &parts)); err != nil {
				t.Fatalf("hiding %v %v: %v", test.scopes, test.events, err)
			}
			if diff := cmp.Diff(api.Keys.Scopes().All().Names(), d.Components.Schemas.Scope.Enum); diff != "" {
				t.Errorf("scopes (-want +got):\n%s", diff)
			}
			var types []string
			for _, t := range test.types {
				types = append(types, string(t))
			}
			if own {
				types = append(types, "teams_created.x")
			}
			if diff := cmp.Diff(types, d.Components.Schemas.EventType.Enum, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("event types (-want +got):\n%s", diff)
			}
			if want := len(types) + 1; len(d.Webhooks) != want { // plus the test event
				t.Errorf("%d webhooks, want %d", len(d.Webhooks), want)
			}
			for _, ref := range reference.FindAllStringSubmatch(text, -1) {
				if parts.Components[ref[1]][ref[2]] == nil {
					t.Errorf("hiding %v %v: %s is missing", test.scopes, test.events, ref[0])
				}
			}
		}
	}
}

func TestOpenAPI_HostWithOwnUnit(t *testing.T) {
	text := string(newHost(t, storageapi.Config{Store: memory.New(), Alerts: alerts.Config{Unit: `"EUR"`}}).OpenAPI())
	if n := strings.Count(text, `An amount of \"EUR\" as a decimal string`); n != 2 || strings.Contains(text, "SUI") || !json.Valid([]byte(text)) {
		t.Errorf("the unit is named %d times", n)
	}
}
