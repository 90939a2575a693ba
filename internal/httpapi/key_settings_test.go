package httpapi_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

func TestUpdateKey_Disabled_IsUnauthorizedLikeUnknown(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	id, token := h.key(alice, scopes.AccountRead)
	path := keysPath + "/" + id
	unknown := httptest.NewRecorder()
	h.api.Auth.WriteUnauthorized(unknown)
	before := h.do("GET", path, admin, "").want(200, "")
	off := h.do("PATCH", path, admin, `{"enabled":false}`).want(200, "")
	if want := strings.Replace(before.body, `"enabled":true`, `"enabled":false`, 1); off.body != want || off.header.Get("ETag") == before.header.Get("ETag") {
		t.Errorf("got  %s\nwant %s with another ETag", off.body, want)
	}
	for _, request := range [][3]string{{"GET", keysPath, ""}, {"GET", keysPath + "/self", ""}, {"DELETE", keysPath + "/self", ""}, {"PATCH", path, `{"enabled":true}`}, {"DELETE", path, ""}} {
		got := h.do(request[0], request[1], token, request[2])
		if diff := cmp.Diff(unknown.Body.String(), got.body+"\n"); got.status != 401 || diff != "" {
			t.Errorf("%s %s: %d (-want +got):\n%s", request[0], request[1], got.status, diff)
		}
	}
	rotated := h.do("POST", path+"/rotate", admin, "").want(200, "")
	if rotated.object()["enabled"] != false || rotated.object()["previous"] != nil {
		t.Errorf("rotated: %s", rotated.body)
	}
	h.do("GET", keysPath, rotated.text("key"), "").want(401, "UNAUTHORIZED")
	h.do("PATCH", path, admin, `{"enabled":true}`, ifMatch(off.header.Get("ETag"))).want(412, "PRECONDITION_FAILED")
	h.do("PATCH", path, admin, `{"enabled":true}`, ifMatch(rotated.header.Get("ETag"))).want(200, "")
	h.do("GET", keysPath, rotated.text("key"), "").want(200, "")
	h.do("GET", keysPath, token, "").want(401, "UNAUTHORIZED")
	if log := h.do("GET", "/v2/audit-log?target="+id+"&limit=1", admin, "").body; !strings.Contains(log, `"changedFields":["enabled"],"turned":"on"`) {
		t.Errorf("audit log: %s", log)
	}
}

// The last key of an account may disable itself, and gets its answer.
func TestUpdateKey_DisablesItself_IsAnswered(t *testing.T) {
	h := serve(t, newClock().config())
	id, token := h.key(alice, scopes.AccountRead)
	if got := h.do("PATCH", keysPath+"/"+id, token, `{"enabled":false}`).want(200, ""); got.object()["enabled"] != false {
		t.Errorf("got %s", got.body)
	}
	h.do("GET", keysPath, token, "").want(401, "UNAUTHORIZED")
}

// TestExtension_RequiresAuthorityToCreate tries changes that let a key be used for longer.
func TestExtension_RequiresAuthorityToCreate(t *testing.T) {
	c := newClock()
	h := serve(t, c.config())
	admin := h.admin(alice)
	at := func(hours int) time.Time { return c.Now().Add(time.Duration(hours) * time.Hour) }
	expiring := func(hours int) string { return `"` + at(hours).Format(time.RFC3339) + `"` }
	for name, test := range map[string]struct {
		hours  int // until the key expires; 0 means never
		off    bool
		body   string
		status int
	}{
		"earlier":                     {2, false, `{"expiresAt":` + expiring(1) + `}`, 200},
		"as late as the caller":       {2, false, `{"expiresAt":` + expiring(3) + `}`, 200},
		"later than the caller":       {2, false, `{"expiresAt":` + expiring(4) + `}`, 403},
		"never":                       {2, false, `{"expiresAt":null}`, 403},
		"disabled, later":             {2, false, `{"enabled":false,"expiresAt":` + expiring(4) + `}`, 403},
		"enabled":                     {2, true, `{"enabled":true}`, 200},
		"enabled, later":              {2, true, `{"enabled":true,"expiresAt":` + expiring(4) + `}`, 403},
		"enabled, never":              {2, true, `{"enabled":true,"expiresAt":null}`, 403},
		"enabled, earlier":            {2, true, `{"enabled":true,"expiresAt":` + expiring(1) + `}`, 200},
		"outlives the caller":         {4, false, `{"expiresAt":` + expiring(1) + `}`, 403},
		"outlives the caller, off":    {4, false, `{"enabled":false}`, 403},
		"never expires, made shorter": {0, true, `{"enabled":true,"expiresAt":` + expiring(1) + `}`, 403},
		"outlives the caller, labels": {0, false, `{"labels":{"a":"b"}}`, 403},
	} {
		_, caller := h.expiringKey(alice, at(3), scopes.FilesRead)
		expires := time.Time{}
		if test.hours > 0 {
			expires = at(test.hours)
		}
		id, _ := h.expiringKey(alice, expires, scopes.FilesRead)
		path := keysPath + "/" + id
		if test.off {
			h.do("PATCH", path, admin, `{"enabled":false}`).want(200, "")
		}
		before := h.do("GET", path, admin, "").body
		got := h.do("PATCH", path, caller, test.body)
		if got.status != test.status {
			t.Errorf("%s: got %d %s, want %d", name, got.status, got.body, test.status)
		}
		if after := h.do("GET", path, admin, "").body; (after == before) != (test.status == 403) {
			t.Errorf("%s: the key was\n%s\nand is\n%s", name, before, after)
		}
		h.do("PATCH", path, admin, `{"enabled":true,"expiresAt":null}`).want(200, "")
	}

	// A key cannot enable another key whose scopes exceed its own.
	id, _ := h.key(alice, scopes.FilesRead, scopes.FilesWrite)
	h.do("PATCH", keysPath+"/"+id, admin, `{"enabled":false}`).want(200, "")
	_, reader := h.key(alice, scopes.FilesRead)
	h.do("PATCH", keysPath+"/"+id, reader, `{"enabled":true}`).want(403, "FORBIDDEN")
}

// A host's policy may let a key change others without letting it create any.
func TestExtension_AsksPolicyForCreation(t *testing.T) {
	c := newClock()
	config := c.config()
	var asked []string
	config.Authorize = func(_ context.Context, _ auth.Principal, access auth.Access) error {
		if access.Target != nil {
			asked = append(asked, fmt.Sprintf("%s %v", access.Action, access.Target.ExpiresAt.Sub(c.Now())))
		}
		if access.Action == auth.CreateKey {
			return auth.ErrForbidden
		}
		return nil
	}
	h := serve(t, config)
	_, token := h.key(alice, scopes.FilesRead)
	id, _ := h.expiringKey(alice, c.Now().Add(time.Hour), scopes.FilesRead)
	for _, step := range []struct {
		body   string
		status int
		want   []string
	}{
		{`{"name":"b","labels":{"a":"b"}}`, 200, []string{"update key 1h0m0s"}},
		{`{"expiresAt":"2026-01-31T12:30:00Z"}`, 200, []string{"update key 1h0m0s"}},
		{`{"expiresAt":"2026-01-31T12:45:00Z"}`, 403, []string{"update key 30m0s", "create key 45m0s"}},
		{`{"enabled":false}`, 200, []string{"update key 30m0s"}},
		{`{"enabled":true}`, 403, []string{"update key 30m0s", "create key 30m0s"}},
	} {
		asked = nil
		h.do("PATCH", keysPath+"/"+id, token, step.body).want(step.status, map[int]string{403: "FORBIDDEN"}[step.status])
		if diff := cmp.Diff(step.want, asked); diff != "" {
			t.Errorf("%s: asked (-want +got):\n%s", step.body, diff)
		}
	}
}

func TestKeyLabels(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	made := h.do("POST", keysPath, admin, `{"name":"a","scopes":["files:read"],"labels":{"team":"billing","env":"a&b","none":null}}`).want(201, "")
	if !strings.HasSuffix(made.body, `,"labels":{"env":"a&b","team":"billing"}}`) {
		t.Errorf("created: %s", made.body)
	}
	path := keysPath + "/" + made.text("id")
	tag := h.do("GET", path, admin, "").want(200, "").header.Get("ETag")
	changed := h.do("PATCH", path, admin, `{"labels":{"env":null,"owner":""}}`, ifMatch(tag)).want(200, "")
	if diff := cmp.Diff(map[string]any{"team": "billing", "owner": ""}, changed.object()["labels"]); diff != "" || changed.header.Get("ETag") == tag {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	h.do("PATCH", path, admin, `{"labels":{"a":"b"}}`, ifMatch(tag)).want(412, "PRECONDITION_FAILED")
	for query, count := range map[string]int{"label=team=billing&label=owner=": 1, "label=team=billing&label=owner=x": 0, "label=env=a%26b": 0} {
		if got := h.do("GET", keysPath+"?"+query, admin, "").want(200, "").ids("id"); len(got) != count {
			t.Errorf("%s: got keys %v, want %d", query, got, count)
		}
	}
	if listed := h.do("GET", keysPath, admin, "").body; !strings.Contains(listed, `"labels":{"owner":"","team":"billing"}`) {
		t.Errorf("listed: %s", listed)
	}
}

func TestMaxLifetime_IsShownAndEnforced(t *testing.T) {
	c := newClock()
	store := memory.New()
	old := serve(t, storageapi.Config{Store: store, Keys: apikeys.Config{Now: c.Now}})
	id, token := old.key(alice, allScopes()...)
	h := serve(t, storageapi.Config{Store: store, Keys: apikeys.Config{Now: c.Now, MaxLifetime: 30 * 24 * time.Hour}})
	path := keysPath + "/" + id
	shown := h.do("GET", path, token, "").want(200, "")
	if shown.object()["expiresAt"] != "2026-03-02T12:00:00.000Z" || !strings.Contains(h.do("GET", keysPath+"/self", token, "").body, `"expiresAt":"2026-03-02T12:00:00.000Z"`) {
		t.Errorf("got %s", shown.body)
	}
	h.do("PATCH", path, token, `{"name":"b"}`, ifMatch(shown.header.Get("ETag"))).want(200, "")
	h.do("PATCH", path, token, `{"labels":{"a":"b"}}`, ifMatch(h.do("GET", path, token, "").header.Get("ETag"))).want(200, "")
	for _, request := range [][3]string{
		{"POST", keysPath, `{"name":"a","scopes":["files:read"],"expiresAt":"2026-03-02T12:00:00.001Z"}`},
		{"PATCH", path, `{"expiresAt":"2026-03-02T12:00:00.001Z"}`},
	} {
		got := h.do(request[0], request[1], token, request[2]).want(400, "VALIDATION_ERROR")
		if got.field() != "expiresAt" || !strings.Contains(got.message(), "30 days") {
			t.Errorf("%s: %s", request[0], got.body)
		}
	}
	h.do("POST", keysPath, token, `{"name":"a","scopes":["files:read"]}`).want(201, "") // expires at the same time as the caller
	c.Add(time.Second)
	h.do("POST", keysPath, token, `{"name":"a","scopes":["files:read"]}`).want(403, "FORBIDDEN")
	// A key that rotates itself does not live longer.
	fresh := h.do("POST", path+"/rotate", token, "").want(200, "")
	if fresh.object()["expiresAt"] != "2026-03-02T12:00:00.000Z" {
		t.Errorf("rotated: %s", fresh.body)
	}
	h.do("PATCH", path, fresh.text("key"), `{"expiresAt":null}`).want(403, "FORBIDDEN")
	c.Set(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC))
	h.do("GET", keysPath+"/self", fresh.text("key"), "").want(401, "UNAUTHORIZED")
}

// If a key's expiry is shortened while the key changes itself, the change must not restore the old
// expiry.
func TestExtension_CallerShortenedMeanwhile_IsForbidden(t *testing.T) {
	c := newClock()
	config := c.config()
	var h *host
	var shorten func()
	config.Authorize = func(ctx context.Context, caller auth.Principal, access auth.Access) error {
		if access.Target != nil && shorten != nil {
			first := shorten
			shorten = nil
			first()
		}
		return auth.LeastPrivilege(ctx, caller, access)
	}
	h = serve(t, config)
	old := c.Now().Add(time.Hour)
	id, token := h.expiringKey(alice, old, scopes.FilesRead)
	shorten = func() {
		soon := c.Now().Add(time.Minute)
		if _, err := h.api.Keys.Update(h.Context(), alice, id, apikeys.UpdateParams{ExpiresAt: &soon}); err != nil {
			t.Error(err)
		}
	}
	h.do("PATCH", keysPath+"/"+id, token, fmt.Sprintf(`{"expiresAt":%q}`, old.Format(time.RFC3339))).want(403, "FORBIDDEN")
	if key, err := h.api.Keys.Get(h.Context(), alice, id); err != nil || key.ExpiresAt.After(c.Now().Add(time.Minute)) {
		t.Errorf("the key expires at %v, %v; want within a minute", key.ExpiresAt, err)
	}
}
