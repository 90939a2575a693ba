package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

const eventsPath = "/v2/notifications/events"

// largest has numbers that parsers with float64 would round, and text that JSON escapes.
type largest struct {
	N    int64  `json:"n"`
	Text string `json:"text"`
}

func (largest) EventType() webhooks.EventType { return "teams.created" }

var (
	aLargest  = largest{9223372036854775807, "<&>\u2028é\"\\\n" + strings.Repeat("long ", 1000)}
	ofLargest = webhooks.EventDeclaration{Type: "teams.created", Description: "Team created", Scope: teamsRead, Example: aLargest}
)

// TestEventBody checks that a client can read exactly the bytes that were sent to the receiver, and
// that HEAD returns the same headers as GET.
func TestEventBody(t *testing.T) {
	r := newReceiver(t)
	config := storageapi.Config{Scopes: []scopes.Declaration{readTeams}, Webhooks: r.config()}
	config.Webhooks.Events = []webhooks.EventDeclaration{ofLargest}
	h := serve(t, config)
	_, reader := h.key(alice, teamsRead) // has only the scope that the type requires
	one := webhooksPath + "/" + h.do("POST", webhooksPath, reader, fmt.Sprintf(`{"url":"%s/hook","events":["teams.created"]}`, r.URL)).want(201, "").text("id")
	go func() { _ = h.api.Run(t.Context()) }()
	if err := h.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: "evt_1", Account: alice, Data: aLargest}); err != nil {
		t.Fatal(err)
	}
	sent, err := io.ReadAll((<-r.received).Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.do("GET", eventsPath+"?include=body", reader, "").want(200, ""); !strings.Contains(got.body, `"body":`+string(sent)+"}") {
		t.Errorf("the list has %s, want the body %s", got.body, sent)
	}
	for _, path := range []string{one + "/deliveries/evt_1/body", eventsPath + "/evt_1/body"} {
		got := h.do("GET", path, reader, "").want(200, "")
		if diff := cmp.Diff(string(sent), got.body); diff != "" {
			t.Errorf("%s (-sent +read):\n%s", path, diff)
		}
		head := h.do("HEAD", path, reader, "").want(200, "")
		for name, want := range map[string]string{
			"Content-Type": "application/json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Length": fmt.Sprint(len(sent)),
		} {
			if got.header.Get(name) != want || head.header.Get(name) != want {
				t.Errorf("%s: %s is %q, and of HEAD %q, want %q", path, name, got.header.Get(name), head.header.Get(name), want)
			}
		}
	}
}

// The responses must reveal nothing about other accounts.
func TestEvents_CallerMaySubscribeToType_MayReadItsEvents(t *testing.T) {
	store := memory.New()
	config := storageapi.Config{Store: store, Scopes: []scopes.Declaration{readTeams}, Webhooks: webhooks.Config{Events: []webhooks.EventDeclaration{ofLargest}}}
	h := serve(t, config)
	all := append(allScopes(), teamsRead)
	_, admin := h.key(alice, all...)
	_, other := h.key(bob, all...)
	made := h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["files.expiring","balance.low","teams.created"]}`).want(201, "")
	one := webhooksPath + "/" + made.text("id")
	for id, data := range map[string]webhooks.Data{"files": eventsOfAllTypes[0], "balance": eventsOfAllTypes[1], "teams": aLargest} {
		if err := h.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: alice, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	ids := []string{"balance", "files", "teams"}
	check := func(h *host, name, token string, may ...string) {
		t.Helper()
		for _, id := range ids {
			status, code := 403, auth.CodeForbidden
			for _, m := range may {
				if m == id {
					status, code = 200, ""
				}
			}
			for _, path := range []string{one + "/deliveries/" + id + "/body", eventsPath + "/" + id + "/body"} {
				got := h.do("GET", path, token, "")
				if got.status != status || code != "" && got.code() != code {
					t.Errorf("%s: GET %s = %d, want %d", name, path, got.status, status)
				}
			}
		}
		listed := map[string]bool{}
		got := h.do("GET", eventsPath, token, "").want(200, "")
		for _, id := range got.ids("id") {
			listed[id] = true
		}
		want := map[string]bool{}
		for _, id := range may {
			want[id] = true
		}
		if diff := cmp.Diff(want, listed); diff != "" {
			t.Errorf("%s: the list (-want +got):\n%s", name, diff)
		}
	}
	tokens := map[string]string{}
	for name, key := range map[string][]scopes.Scope{
		"account": {scopes.AccountRead}, "files": {scopes.FilesRead}, "both": {scopes.FilesRead, scopes.AccountRead}, "teams": {teamsRead}, "specified": allScopes(),
	} {
		_, tokens[name] = h.key(alice, key...)
	}
	check(h, "all", admin, ids...)
	check(h, "account:read", tokens["account"], "balance")
	check(h, "files:read", tokens["files"], "files")
	check(h, "both", tokens["both"], "balance", "files")
	check(h, "teams:read", tokens["teams"], "teams")
	h.do("GET", eventsPath+"?type=files.expiring", tokens["account"], "").want(403, auth.CodeForbidden)
	if got := h.do("GET", eventsPath+"?type=files.expiring&type=balance.low", tokens["account"], "").want(403, auth.CodeForbidden); !strings.Contains(got.message(), "files:read for files.expiring") {
		t.Errorf("the refusal says %s", got.message())
	}
	_, none := h.key(alice, scopes.SecretsRead)
	h.do("GET", eventsPath, none, "").want(403, auth.CodeForbidden)
	h.do("GET", eventsPath+"/files/body", none, "").want(403, auth.CodeForbidden)
	h.do("GET", eventsPath, "", "").want(401, auth.CodeUnauthorized)

	for _, path := range []string{"/files", "/nothing"} { // bob must get the same response for both
		h.do("GET", eventsPath+path+"/body", other, "").want(404, auth.CodeNotFound)
		h.do("GET", one+"/deliveries"+path+"/body", other, "").want(404, auth.CodeNotFound)
	}
	theirs := h.do("GET", eventsPath+"/files/body", other, "").body
	if unknown := h.do("GET", eventsPath+"/nothing/body", other, "").body; theirs != unknown {
		t.Errorf("of another account %s, of none %s", theirs, unknown)
	}
	if listed := h.do("GET", eventsPath, other, "").want(200, "").ids("id"); len(listed) > 0 {
		t.Errorf("another account is listed %v", listed)
	}

	config = storageapi.Config{Store: store}
	h = serve(t, config) // neither the type nor its scope is declared now
	check(h, "account:read, once a type is withdrawn", tokens["account"], "balance")
	check(h, "all that there are, once a type is withdrawn", tokens["specified"], ids...)
	check(h, "both, once a type is withdrawn", tokens["both"], "balance", "files")
	h.do("GET", eventsPath+"?type=teams.created", tokens["both"], "").want(403, auth.CodeForbidden)
	if diff := cmp.Diff([]string{"teams"}, h.do("GET", eventsPath+"?type=teams.created", tokens["specified"], "").want(200, "").ids("id")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An event whose body was purged must still be listed, with bodyKeptUntil announcing the purge
// beforehand. The 404 for the body must state the reason.
func TestBodyAfterRetention(t *testing.T) {
	store := memory.New()
	h := serve(t, storageapi.Config{Store: store, Webhooks: webhooks.Config{Retention: webhooks.Retention{Payloads: 100 * 24 * time.Hour}}})
	admin := h.admin(alice)
	one := webhooksPath + "/" + h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "").text("id")
	h.publish("evt_1")
	got := h.do("GET", one+"/deliveries/evt_1", admin, "").want(200, "")
	published, err := time.Parse(time.RFC3339, got.text("publishedAt"))
	if err != nil {
		t.Fatal(err)
	}
	until := published.Add(100 * 24 * time.Hour).Format("2006-01-02T15:04:05.000Z")
	listed := h.do("GET", eventsPath, admin, "").want(200, "").body
	if got.text("bodyKeptUntil") != until || !strings.Contains(listed, `"hasBody":true,"bodyKeptUntil":"`+until+`"`) {
		t.Errorf("got %s and %s, want %s", got.body, listed, until)
	}
	more, err := store.Purge(t.Context(), driver.Purge{Payloads: time.Now().Add(time.Hour), Limit: 9})
	if more || err != nil {
		t.Fatal(more, err)
	}
	for _, path := range []string{one + "/deliveries/evt_1/body", eventsPath + "/evt_1/body"} {
		if got := h.do("GET", path, admin, "").want(404, auth.CodeNotFound); !strings.Contains(got.message(), "not stored") {
			t.Errorf("%s: got message %s", path, got.message())
		}
	}
	if listed := h.do("GET", eventsPath, admin, "").want(200, "").body; !strings.Contains(listed, `"hasBody":false`) {
		t.Errorf("the list is %s", listed)
	}

	h = serve(t, storageapi.Config{Store: memory.New(), Webhooks: webhooks.Config{Retention: webhooks.Retention{Payloads: -1, Attempts: -1, EventIDs: -1}}})
	admin = h.admin(alice)
	h.publish("evt_2")
	if listed := h.do("GET", eventsPath, admin, "").want(200, "").body; !strings.Contains(listed, `,"bodyKeptUntil":null`) {
		t.Errorf("the list is %s", listed)
	}
}

// TestEventList reads the list newest first and, with since, oldest first. With since, a cursor
// must continue with later events.
func TestEventList(t *testing.T) {
	h := serve(t, storageapi.Config{})
	admin := h.admin(alice)
	for i, data := range eventsOfAllTypes {
		id := fmt.Sprint("evt_", 9-i) // IDs descend, so that the list's order differs from the order of IDs
		if err := h.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: alice, Data: data, Timestamp: time.Unix(int64(i), 0)}); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"evt_4", "evt_5", "evt_6", "evt_7", "evt_8", "evt_9"}
	reversed := []string{"evt_9", "evt_8", "evt_7", "evt_6", "evt_5", "evt_4"}
	for query, want := range map[string][]string{
		"": all, "from=2020-01-01": all, "since=2020-01-01": reversed, "since=2999-01-01": {}, "to=2020-01-01": {},
		"since=2020-01-01&to=2999-01-01":                        reversed,
		"type=balance.low":                                      {"evt_8"},
		"type=balance.low&type=files.expiring&since=1970-01-01": {"evt_9", "evt_8"},
		"type=teams.created":                                    {},
		"from=" + url.QueryEscape("2020-01-01T00:00:00+01:00"):  all,
		"limit=2": {"evt_4", "evt_5"},
		"type=files.expiring&type=files.expiring&since=1970-01-01":     {"evt_9"},
		"type=bandwidth.limit_reached&type=transactions.limit_reached": {"evt_4", "evt_6"},
	} {
		if diff := cmp.Diff(want, h.do("GET", eventsPath+"?"+query, admin, "").want(200, "").ids("id")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	first := h.do("GET", eventsPath+"?limit=1&since=1970-01-01", admin, "").want(200, "")
	if form := `{"data":[{"id":"evt_9","type":"files.expiring","timestamp":"1970-01-01T00:00:00.000Z","publishedAt":"`; !strings.HasPrefix(first.body, form) || strings.Contains(first.body, "file_1") {
		t.Errorf("got %s", first.body)
	}
	follow := func(query string, limit int) (ids []string, cursor string) {
		t.Helper()
		for cursor = ""; ; {
			got := h.do("GET", fmt.Sprintf("%s?%s&limit=%d%s", eventsPath, query, limit, cursor), admin, "").want(200, "")
			ids = append(ids, got.ids("id")...)
			next, _ := got.object()["nextCursor"].(string)
			if cursor = "&cursor=" + next; got.object()["hasMore"] == false {
				if (next != "") != strings.Contains(query, "since") {
					t.Errorf("%s: nextCursor at the end is %q", query, next)
				}
				return ids, cursor
			}
		}
	}
	for limit := 1; limit < 8; limit++ {
		ids, _ := follow("from=1970-01-01", limit)
		since, _ := follow("since=1970-01-01", limit)
		if !cmp.Equal(ids, all) || !cmp.Equal(since, reversed) {
			t.Errorf("in parts of %d: %v, %v", limit, ids, since)
		}
	}
	_, cursor := follow("since=1970-01-01", 100)
	page := func() reply { return h.do("GET", eventsPath+"?since=1970-01-01"+cursor, admin, "").want(200, "") }
	if ids := page().ids("id"); len(ids) > 0 {
		t.Errorf("behind the end there are %v", ids)
	}
	h.publish("evt_0")
	if diff := cmp.Diff([]string{"evt_0"}, page().ids("id")); diff != "" {
		t.Errorf("behind the end (-want +got):\n%s", diff)
	}
	newest := h.do("GET", eventsPath+"?limit=1", admin, "").text("nextCursor")
	for query, want := range map[string]string{
		"limit=0": "limit must", "type=": "type must be an event type", "type=balance.low%00": "type must", "type=" + strings.Repeat("a", 65): "type must", "type=Balance.low": "type must",
		"include=": "include must be body", "include=body&include=body": "include must be body", "webhook=": "webhook must be one id", "webhook=wh_1": "webhook must", "webhook=wh_" + someULID + "&webhook=wh_" + someULID: "webhook must",
		"from=x": "from must be an RFC 3339", "to=": "to must", "since=": "since must be an RFC 3339", "since=1969-12-31": "since must not be before 1970",
		"since=2020-01-01&from=2020-01-01": `since must not be combined with "from"`, "since=2020-01-01&since=2020-01-01": "since must be given only once",
		"from=2020-01-02&to=2020-01-02": `to must be later than "from" or "since"`, "since=2020-01-02&to=2020-01-01": `to must be later than "from" or "since"`,
		"cursor=x": "cursor must", "limit=1" + cursor: "cursor must", "since=2020-01-01&cursor=" + newest: "cursor must", "a;b": "query must",
		manyTypes(): "type must not be repeated more",
	} {
		if got := h.do("GET", eventsPath+"?"+query, admin, "").want(400, "VALIDATION_ERROR"); !strings.HasPrefix(got.message(), want) {
			t.Errorf("%s: got message %q, want %q", query, got.message(), want)
		}
	}
	for _, id := range []string{"nothing", "%00", strings.Repeat("a", 200), "a%2Fb", "é"} {
		h.do("GET", eventsPath+"/"+id+"/body", admin, "").want(404, "NOT_FOUND")
	}
}

// Two webhooks have the same threshold. When the balance crosses it, each gets its own event. A
// receiver that catches up must be able to list only the events for its webhook.
func TestEvents_ByWebhook_ListsThoseForIt(t *testing.T) {
	h := serve(t, storageapi.Config{})
	admin, theirs := h.admin(alice), h.admin(bob)
	one := h.do("POST", webhooksPath, admin, newWebhook).want(201, "").text("id")
	two := h.do("POST", webhooksPath, admin, newWebhook).want(201, "").text("id")
	if err := h.api.Alerts.ReportBalance(t.Context(), alice, 1); err != nil {
		t.Fatal(err)
	}
	all := h.do("GET", eventsPath, admin, "").want(200, "").ids("id")
	ofOne := h.do("GET", eventsPath+"?since=1970-01-01&webhook="+one, admin, "").want(200, "").ids("id")
	ofTwo := h.do("GET", eventsPath+"?webhook="+two, admin, "").want(200, "").ids("id")
	if len(all) != 2 || len(ofOne) != 1 || len(ofTwo) != 1 || ofOne[0] == ofTwo[0] {
		t.Fatalf("got %v of all webhooks, %v and %v of each, want one event for each", all, ofOne, ofTwo)
	}
	h.do("GET", webhooksPath+"/"+one+"/deliveries/"+ofOne[0], admin, "").want(200, "")
	h.do("GET", eventsPath+"?webhook="+one, theirs, "").want(404, "NOT_FOUND")
	h.do("GET", eventsPath+"?webhook=wh_"+someULID, admin, "").want(404, "NOT_FOUND")
}

func TestEvents_IncludeBody_HasBodiesThatTheCallerMayRead(t *testing.T) {
	h := serve(t, storageapi.Config{Authorize: func(_ context.Context, _ auth.Principal, access auth.Access) error {
		if access.Action == auth.ReadEvents && access.Target != nil && access.Target.ID == "evt_secret" {
			return auth.ErrForbidden
		}
		return nil
	}})
	admin := h.admin(alice)
	h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "")
	for _, id := range []string{"evt_1", "evt_secret"} {
		if err := h.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: id, Account: alice, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}); err != nil {
			t.Fatal(err)
		}
	}
	sent := h.do("GET", eventsPath+"/evt_1/body", admin, "").want(200, "").body
	got := h.do("GET", eventsPath+"?include=body", admin, "").want(200, "")
	if diff := cmp.Diff([]string{"evt_secret", "evt_1"}, got.ids("id")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if strings.Count(got.body, `"body":`) != 1 || !strings.Contains(got.body, `"body":`+sent+"}]") {
		t.Errorf("got %s, want only the body %s", got.body, sent)
	}
	if got := h.do("GET", eventsPath, admin, "").want(200, ""); strings.Contains(got.body, `"body":`) {
		t.Errorf("without include: %s", got.body)
	}
}

func manyTypes() string {
	var query strings.Builder
	for i := range 129 {
		fmt.Fprintf(&query, "type=a%d&", i)
	}
	return query.String()
}

func TestEvents_HostsPolicy_IsAskedOncePerScopeSet(t *testing.T) {
	asked := 0
	config := storageapi.Config{Authorize: func(_ context.Context, _ auth.Principal, access auth.Access) error {
		if access.Action != auth.ReadEvents {
			return auth.ErrForbidden
		}
		asked++
		if access.Target != nil && access.Target.Scopes != scopes.Of(scopes.FilesRead) {
			return auth.ErrForbidden
		}
		return nil
	}}
	h := serve(t, config)
	_, token := h.key(alice, scopes.SecretsRead)
	for i, data := range eventsOfAllTypes[:2] {
		if err := h.api.Webhooks.Publish(t.Context(), webhooks.Event{ID: fmt.Sprint("evt_", i), Account: alice, Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"evt_0"}, h.do("GET", eventsPath, token, "").want(200, "").ids("id")); diff != "" || asked != 4 { // once without a target, and once each for files:read, account:read and all scopes
		t.Errorf("asked %d times (-want +got):\n%s", asked, diff)
	}
}
