package httpapi_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/httpapi"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

// limitedKey creates a key with all scopes that is limited to resources.
func (h *host) limitedKey(name string, resources ...string) (id, token string) {
	h.Helper()
	key, secret, err := h.api.Keys.Create(h.Context(), alice, apikeys.CreateParams{Name: name, Scopes: scopes.Specified(), Resources: resources})
	if err != nil {
		h.Fatal(err)
	}
	return key.ID, secret.Reveal()
}

// A household is an account with keys, webhooks and events of several resources. Everything outside
// the resource "a" has "theirs" in its name, URL or ID.
type household struct {
	*host
	admin, caller     string // the values of a key without a limit, and of a key limited to a
	self, child       string // keys limited to a
	keys              []string
	own, narrowed     string // webhooks limited to a; narrowed had no limit until all events were published
	hooks, recoveries []string
	ownEvent          string
	events            []string
}

func newHousehold(t *testing.T) *household {
	h := serve(t, storageapi.Config{Store: memory.New(), Webhooks: webhooks.Config{Outbound: webhooks.Outbound{AllowHosts: []string{"example.com"}}}})
	house := &household{host: h, admin: h.admin(alice)}
	house.self, house.caller = h.limitedKey("mine", "a")
	house.child, _ = h.limitedKey("mine too", "a")
	for _, resources := range [][]string{nil, {"b"}, {"a", "b"}} {
		id, _ := h.limitedKey("theirs", resources...)
		house.keys = append(house.keys, id)
	}
	webhook := func(name, resources string) string {
		body := fmt.Sprintf(`{"url":"https://example.com/%s","events":["balance.low","files.expiring"],"resources":%s}`, name, resources)
		return h.do("POST", webhooksPath, house.admin, body).want(201, "").text("id")
	}
	house.own, house.narrowed = webhook("mine", `["a"]`), webhook("narrowed", "null")
	for _, resources := range []string{"null", `["b"]`, `["a","b"]`} {
		house.hooks = append(house.hooks, webhook("theirs", resources))
	}
	house.ownEvent, house.events = "mine", []string{"theirs_b", "theirs_ab", "theirs_none"}
	for id, resource := range map[string]string{house.ownEvent: "a", house.events[0]: "b", house.events[1]: "ab", house.events[2]: ""} {
		event := webhooks.Event{ID: id, Account: alice, Resource: resource, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
		if err := h.api.Webhooks.Publish(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	h.do("PATCH", webhooksPath+"/"+house.narrowed, house.admin, `{"resources":["a"]}`).want(200, "")
	for _, hook := range house.hooks {
		house.recoveries = append(house.recoveries, h.do("POST", webhooksPath+"/"+hook+"/recoveries", house.admin, "").want(202, "").text("id"))
	}
	return house
}

// use matches the JSON members that record uses of a key.
var use = regexp.MustCompile(`"lastUsedAt":[^,]*,|,"(lastUsedFrom":"[^"]*"|(scopesUsed|networksUsed)":\[[^]]*\])`)

// state returns all that an administrator sees, to detect changes.
func (h *household) state() map[string]string {
	state := make(map[string]string)
	see := func(path string) {
		state[path] = use.ReplaceAllString(h.do("GET", path, h.admin, "").want(200, "").body, "")
	}
	see(keysPath)
	see(webhooksPath)
	see(eventsPath)
	see("/v2/audit-log?limit=100")
	for _, hook := range append(h.hooks, h.narrowed, h.own) {
		see(webhooksPath + "/" + hook + "/deliveries")
	}
	return state
}

// TestLimitedKey_EveryRoute_SeesNothingElse calls each route with a key that is limited to a
// resource, for every object outside that resource.
func TestLimitedKey_EveryRoute_SeesNothingElse(t *testing.T) {
	h := newHousehold(t)
	foreign := slices.Concat(h.keys, h.hooks, h.recoveries, []string{"theirs"})
	check := func(method, path, body string, status int) reply {
		t.Helper()
		got := h.do(method, path, h.caller, body)
		if got.status != status {
			t.Errorf("%s %s %s: got %d %s, want %d", method, path, body, got.status, got.body, status)
		}
		for _, text := range foreign {
			if !strings.Contains(path, text) && strings.Contains(got.body, text) || strings.Contains(got.body, "example.com/theirs") {
				t.Errorf("%s %s %s reveals %s: %s", method, path, body, text, got.body)
			}
		}
		return got
	}
	list := func(path, field string, want ...string) {
		t.Helper()
		got := check("GET", path, "", 200).ids(field)
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("GET %s: got %v, want %v", path, got, want)
		}
	}
	const newKey, newWebhook = `{"name":"new","scopes":["files:read"]%s}`, `{"url":"https://example.com/new","events":["balance.low"]%s}`
	before := h.state()
	for _, route := range httpapi.Routes() {
		method, pattern, _ := strings.Cut(route, " ")
		tested := true
		under := func(ids []string, body string) {
			for _, id := range ids {
				for _, event := range append(h.events, h.ownEvent) {
					path := strings.NewReplacer("{id}", id, "{eventId}", event, "{recoveryId}", h.recoveries[0]).Replace(pattern)
					check(method, path, body, 404)
				}
			}
		}
		switch pattern {
		case "/v2/api-keys", "/v2/notifications/webhooks":
			create := newKey
			if pattern == "/v2/notifications/webhooks" {
				create = newWebhook
			}
			if method == "GET" {
				break // GET is tested at the end
			}
			for resources, required := range map[string][]string{"": nil, `,"resources":null`: nil, `,"resources":["b"]`: {"b"}, `,"resources":["b","a","c"]`: {"b", "c"}} {
				got := check(method, pattern, fmt.Sprintf(create, resources), 403)
				if diff := cmp.Diff(required, got.failure().Error.RequiredResources); diff != "" {
					t.Errorf("%s%s: requiredResources (-want +got):\n%s", route, resources, diff)
				}
			}
			for _, resources := range []string{"[]", `[""]`, `["a b"]`, `["é"]`, `["` + strings.Repeat("x", 129) + `"]`} {
				if got := check(method, pattern, fmt.Sprintf(create, `,"resources":`+resources), 400); got.field() != "resources" || !strings.HasPrefix(got.message(), "resources must be 1 to 64 names") {
					t.Errorf("%s %s: got %s", route, resources, got.body)
				}
			}
		case "/v2/api-keys/self":
			if method == "GET" {
				if got := check(method, pattern, "", 200); !strings.Contains(got.body, `"resources":["a"]`) {
					t.Errorf("%s: got %s", route, got.body)
				}
			} // DELETE, which revokes the caller, is tested elsewhere
		case "/v2/api-keys/{id}":
			under(h.keys, map[string]string{"PATCH": `{"name":"stolen"}`}[method])
		case "/v2/api-keys/{id}/rotate", "/v2/api-keys/{id}/refusals":
			under(h.keys, "")
		case "/v2/notifications/events/{id}/body":
			under(h.events, "")
		case "/v2/notifications/events":
			list(pattern, "id", h.ownEvent)
			list(pattern+"?since=2020-01-01T00:00:00Z", "id", h.ownEvent)
			list(pattern+"?webhook="+h.narrowed, "id", h.ownEvent)
			for _, hook := range h.hooks {
				check("GET", pattern+"?webhook="+hook, "", 404)
			}
		case "/v2/audit-log":
			list(pattern+"?action=key.created", "id", h.entriesOf(h.self, h.child)...)
			list(pattern+"?action=webhook.created", "id", h.entriesOf(h.own, h.narrowed)...)
			for _, id := range append(h.keys, h.hooks...) {
				list(pattern+"?target="+id, "id")
			}
		default:
			if tested = strings.HasPrefix(pattern, "/v2/notifications/webhooks/{id}"); tested {
				under(h.hooks, map[string]string{"PATCH": `{"active":false}`}[method])
				if strings.HasSuffix(pattern, "/test") {
					under(h.hooks, `{"type":"files.expiring"}`)
				}
				if strings.Contains(pattern, "{eventId}") {
					for _, event := range h.events { // pending, since the webhook had no limit
						path := strings.NewReplacer("{id}", h.narrowed, "{eventId}", event).Replace(pattern)
						check(method, path, "", 404)
					}
				}
			}
		}
		if !tested {
			t.Errorf("route %s is not tested", route)
		}
	}
	list(keysPath, "id", h.self, h.child)
	list(keysPath+"?name=theirs", "id")
	list(webhooksPath, "id", h.own, h.narrowed)
	list(webhooksPath+"/"+h.narrowed+"/deliveries", "eventId", h.ownEvent)
	check("PATCH", webhooksPath+"/"+h.own, `{"resources":["b"]}`, 403)
	check("PATCH", webhooksPath+"/"+h.own, `{"resources":["a","b"]}`, 403)
	check("PATCH", webhooksPath+"/"+h.own, `{"resources":null}`, 403)
	if diff := cmp.Diff(before, h.state()); diff != "" {
		t.Errorf("requests with a limited key have changed (-before +after):\n%s", diff)
	}
}

// entriesOf returns the IDs of the audit entries for the creation of these keys or webhooks.
func (h *household) entriesOf(targets ...string) (ids []string) {
	for _, target := range targets {
		all := h.do("GET", "/v2/audit-log?target="+target, h.admin, "").want(200, "").ids("id")
		ids = append(ids, all[len(all)-1])
	}
	return ids
}

// Neither the cursors nor the number of pages of a list reveal objects that a limited key does not
// see.
func TestLimitedKey_ListInPages_RevealsNothingElse(t *testing.T) {
	h := newHousehold(t)
	for path, want := range map[string][]string{
		keysPath: {h.child, h.self}, keysPath + "?scope=files:read": {h.child, h.self}, webhooksPath: {h.narrowed, h.own},
	} {
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		for i, id := range want {
			page := h.do("GET", path+separator+"limit=1", h.caller, "").want(200, "")
			var got struct{ NextCursor string }
			if err := json.Unmarshal([]byte(page.body), &got); err != nil {
				t.Fatal(err)
			}
			cursor, err := base64.RawURLEncoding.DecodeString(got.NextCursor)
			if last := i == len(want)-1; err != nil || !slices.Equal(page.ids("id"), want[i:i+1]) || last != (got.NextCursor == "") || !last && string(cursor) != id {
				t.Errorf("%s: page %d is %v with cursor %s, want %s", path, i, page.ids("id"), cursor, id)
			}
			path, separator = strings.SplitN(path, separator+"cursor=", 2)[0]+separator+"cursor="+got.NextCursor, "&"
		}
	}
	hidden := strings.ReplaceAll(h.do("GET", "/v2/audit-log?limit=1&target="+h.hooks[0], h.caller, "").want(200, "").body, h.hooks[0], "")
	if unknown := h.do("GET", "/v2/audit-log?limit=1&target=wh_"+someULID, h.caller, "").want(200, "").body; hidden != unknown {
		t.Errorf("audit log of a hidden webhook: %s; of an unknown one: %s", hidden, unknown)
	}
}

// A limited key does not see the ID of another key in createdBy.
func TestLimitedKey_KeyCreatedByHiddenKey_HidesCreator(t *testing.T) {
	h := newHousehold(t)
	const body = `{"name":"a","scopes":["files:read"],"resources":["a"]}`
	byAdmin := keysPath + "/" + h.do("POST", keysPath, h.admin, body).want(201, "").text("id")
	own := keysPath + "/" + h.do("POST", keysPath, h.caller, body).want(201, "").text("id")
	type view struct {
		CreatedBy struct{ Kind, ID string }
	}
	creator := func(token, path string) string {
		t.Helper()
		var got view
		if err := json.Unmarshal([]byte(h.do("GET", path, token, "").want(200, "").body), &got); err != nil || got.CreatedBy.Kind != "key" {
			t.Errorf("GET %s: %+v, %v", path, got, err)
		}
		return got.CreatedBy.ID
	}
	admin := creator(h.admin, byAdmin)
	if admin == "" || creator(h.caller, byAdmin) != "" || creator(h.caller, own) != h.self {
		t.Errorf("creators are %q for the admin; %q and %q for the limited key, want none and %s", admin, creator(h.caller, byAdmin), creator(h.caller, own), h.self)
	}
	for _, got := range []reply{
		h.do("GET", keysPath, h.caller, ""), h.do("PATCH", byAdmin, h.caller, `{"name":"b"}`), h.do("POST", byAdmin+"/rotate", h.caller, ""),
	} {
		if got.want(200, ""); strings.Contains(got.body, admin) {
			t.Errorf("the limited key sees %s: %s", admin, got.body)
		}
	}
}

// An event type that is no longer declared is valid only in changes of a webhook that has it. So
// types must not be checked for a webhook that the caller does not see.
func TestLimitedKey_ChangesHiddenWebhook_IsNotFoundWhateverTheBody(t *testing.T) {
	h := newHousehold(t)
	for _, id := range []string{h.hooks[0], "wh_" + someULID} {
		for _, body := range []string{`{"events":["balance.low"]}`, `{"events":["once.declared"]}`, `{"url":1}`} {
			h.do("PATCH", webhooksPath+"/"+id, h.caller, body).want(404, auth.CodeNotFound)
		}
	}
}

// TestLimitedKey_OwnResources_WorksAsUsual checks that the limit does not get in the way of a key's
// own objects.
func TestLimitedKey_OwnResources_WorksAsUsual(t *testing.T) {
	h := newHousehold(t)
	key := h.do("POST", keysPath, h.caller, `{"name":"a","scopes":["files:read"],"resources":["a","a"]}`).want(201, "")
	if !strings.Contains(key.body, `"resources":["a"]`) {
		t.Errorf("got %s, want the resources", key.body)
	}
	one := keysPath + "/" + key.text("id")
	h.do("GET", one, h.caller, "").want(200, "")
	h.do("PATCH", one, h.caller, `{"name":"b"}`).want(200, "")
	rotated := h.do("POST", one+"/rotate", h.caller, "").want(200, "")
	h.do("POST", keysPath, rotated.text("key"), `{"name":"a","scopes":["files:read"]}`).want(403, auth.CodeForbidden)
	h.do("PATCH", one, h.admin, `{"resources":["b"]}`).want(400, auth.CodeValidation)
	h.do("DELETE", one, h.caller, "").want(204, "")

	hook := webhooksPath + "/" + h.do("POST", webhooksPath, h.caller, `{"url":"https://example.com/","events":["balance.low"],"resources":["a"]}`).want(201, "").text("id")
	h.do("GET", hook, h.caller, "").want(200, "")
	h.do("PATCH", hook, h.caller, `{"active":false}`).want(200, "")
	h.do("POST", hook+"/rotate-secret", h.caller, "").want(200, "")
	h.do("POST", hook+"/recoveries", h.caller, "").want(202, "")
	h.do("DELETE", hook, h.caller, "").want(204, "")

	own := webhooksPath + "/" + h.own + "/deliveries/" + h.ownEvent
	for _, path := range []string{own, own + "/body", own + "/explanation", eventsPath + "/" + h.ownEvent + "/body"} {
		h.do("GET", path, h.caller, "").want(200, "")
	}
	if got := h.do("POST", own+"/redeliver", h.caller, "").want(202, ""); !strings.Contains(got.body, `"resource":"a"`) {
		t.Errorf("got %s, want the resource", got.body)
	}
	h.do("DELETE", keysPath+"/self", h.caller, "").want(204, "")
}

// If a limited key repeats another key's creation with the same Idempotency-Key, the response must
// not show the object. Creations that differ in resources have different parameters.
func TestLimitedKey_RepeatedCreation_IsRefused(t *testing.T) {
	h := newHousehold(t)
	once := func(r *http.Request) { r.Header.Set("Idempotency-Key", "once") }
	const body = `{"url":"https://example.com/","events":["balance.low"],"resources":["a"%s]}`
	id := h.do("POST", webhooksPath, h.admin, fmt.Sprintf(body, ""), once).want(201, "").text("id")
	h.do("POST", webhooksPath, h.admin, fmt.Sprintf(body, `,"b"`), once).want(409, auth.CodeConflict)
	h.do("POST", webhooksPath, h.caller, fmt.Sprintf(body, ""), once).want(200, "")
	h.do("PATCH", webhooksPath+"/"+id, h.admin, `{"resources":["b"]}`).want(200, "")
	h.do("POST", webhooksPath, h.caller, fmt.Sprintf(body, ""), once).want(404, auth.CodeNotFound)

	const key = `{"name":"a","scopes":["files:read"],"resources":["a"%s]}`
	h.do("POST", keysPath, h.admin, fmt.Sprintf(key, `,"b"`), once).want(201, "")
	h.do("POST", keysPath, h.admin, fmt.Sprintf(key, ""), once).want(409, auth.CodeConflict)
	h.do("POST", keysPath, h.caller, fmt.Sprintf(key, `,"b"`), once).want(403, auth.CodeForbidden)
}

// A host's own policy cannot lift the limit.
func TestLimitedKey_HostAllowsEverything_StaysLimited(t *testing.T) {
	h := serve(t, storageapi.Config{Store: memory.New(), Authorize: func(context.Context, auth.Principal, auth.Access) error { return nil }})
	_, caller := h.limitedKey("mine", "a")
	other, _ := h.limitedKey("theirs", "b")
	h.do("GET", keysPath+"/"+other, caller, "").want(404, auth.CodeNotFound)
	h.do("DELETE", keysPath+"/"+other, caller, "").want(404, auth.CodeNotFound)
	h.do("POST", keysPath, caller, `{"name":"a","scopes":["files:read"]}`).want(403, auth.CodeForbidden)
	h.do("POST", keysPath, caller, `{"name":"a","scopes":["files:read"],"resources":["a"]}`).want(201, "")
}
