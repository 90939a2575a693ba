package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// TestRoutesByScope calls each route with one key per scope, each with that scope only.
func TestRoutesByScope(t *testing.T) {
	r := newReceiver(t) // for test events
	config := newClock().config()
	config.Webhooks, config.Keys.MaxPerAccount = r.config(), -1
	h := serve(t, config)
	admin := h.admin(alice)
	owed := webhooksPath + "/" + h.do("POST", webhooksPath, admin, fmt.Sprintf(`{"url":"%s","events":["balance.low"]}`, r.URL)).want(201, "").text("id")
	recovery := "/recoveries/" + h.do("POST", owed+"/recoveries", admin, "").want(202, "").text("id")
	h.publishSomeEvent()
	webhook := func(event string) string {
		return fmt.Sprintf(`{"url":"https://example.com","events":[%q]}`, event)
	}
	newWebhook := func(event string) string {
		return webhooksPath + "/" + h.do("POST", webhooksPath, admin, webhook(event)).want(201, "").text("id")
	}
	newKey := func(member scopes.Scope) string {
		id, _ := h.key(alice, member)
		return keysPath + "/" + id
	}
	for held := range scopes.Specified().All() {
		_, token := h.key(alice, held)
		allowed := func(ok bool, status int) int {
			if ok {
				return status
			}
			return 403
		}
		account, files := held == scopes.AccountRead, held == scopes.FilesRead
		onFiles, onBalance := newWebhook("files.expiring"), newWebhook("balance.low")
		for _, test := range []struct {
			method, path, body string
			status             int
		}{
			{"GET", keysPath, "", allowed(account, 200)},
			{"GET", newKey(held), "", allowed(account, 200)},
			{"GET", webhooksPath, "", allowed(account, 200)},
			{"GET", onBalance, "", allowed(account, 200)},
			{"POST", webhooksPath, webhook("files.expiring"), allowed(files, 201)},
			{"POST", webhooksPath, webhook("balance.low"), allowed(account, 201)},
			{"POST", webhooksPath, webhook("bandwidth.limit_approaching"), allowed(account, 201)},
			{"POST", webhooksPath, webhook("bandwidth.limit_reached"), allowed(account, 201)},
			{"POST", webhooksPath, webhook("transactions.limit_approaching"), allowed(account, 201)},
			{"POST", webhooksPath, webhook("transactions.limit_reached"), allowed(account, 201)},
			{"POST", webhooksPath, `{"url":"https://example.com","events":["files.expiring","balance.low"]}`, 403},
			{"PATCH", onFiles, `{"active":false}`, allowed(files, 200)},
			{"PATCH", onBalance, `{"active":false}`, allowed(account, 200)},
			{"PATCH", onFiles, `{"events":["balance.low"]}`, 403},
			{"PATCH", onBalance, `{"events":["files.expiring"]}`, 403},
			{"POST", onFiles + "/rotate-secret", "", allowed(files, 200)},
			{"POST", onBalance + "/rotate-secret", "", allowed(account, 200)},
			{"POST", owed + "/test", "", allowed(account, 200)},
			{"GET", owed + "/deliveries", "", allowed(account, 200)},
			{"GET", owed + "/deliveries/" + someEvent, "", allowed(account, 200)},
			{"POST", owed + "/deliveries/" + someEvent + "/redeliver", "", allowed(account, 202)},
			{"POST", onFiles + "/recoveries", "", allowed(files, 202)},
			{"POST", onBalance + "/recoveries", "", allowed(account, 202)},
			{"GET", owed + recovery, "", allowed(account, 200)},
			{"DELETE", onFiles, "", allowed(files, 204)},
			{"DELETE", onBalance, "", allowed(account, 204)},
			{"PATCH", newKey(held), `{"name":"b"}`, 200},
			{"POST", newKey(held) + "/rotate", "", 200},
			{"DELETE", newKey(held), "", 204},
		} {
			if got := h.do(test.method, test.path, token, test.body); got.status != test.status {
				t.Errorf("%s: %s %s %s: got %d, want %d", held, test.method, test.path, test.body, got.status, test.status)
			}
		}
		for target := range scopes.Specified().All() {
			body := fmt.Sprintf(`{"name":"a","scopes":[%q]}`, target)
			if got, want := h.do("POST", keysPath, token, body).status, allowed(target == held, 201); got != want {
				t.Errorf("%s: create a key for %s: got %d, want %d", held, target, got, want)
			}
			if got, want := h.do("PATCH", newKey(target), token, `{"name":"b"}`).status, allowed(target == held, 200); got != want {
				t.Errorf("%s: update a key for %s: got %d, want %d", held, target, got, want)
			}
			if got, want := h.do("POST", newKey(target)+"/rotate", token, "").status, allowed(target == held, 200); got != want {
				t.Errorf("%s: rotate a key for %s: got %d, want %d", held, target, got, want)
			}
			if got, want := h.do("DELETE", newKey(target), token, "").status, allowed(target == held, 204); got != want {
				t.Errorf("%s: delete a key for %s: got %d, want %d", held, target, got, want)
			}
		}
	}
}

// TestEscalation tries to create, change and delete keys and webhooks that have more authority than
// the caller.
func TestEscalation(t *testing.T) {
	c := newClock()
	h := serve(t, c.config())
	soon, later := c.Now().Add(time.Hour), c.Now().Add(2*time.Hour)
	ab, a, b := scopes.Of(scopes.FilesRead, scopes.FilesWrite), scopes.Of(scopes.FilesRead), scopes.Of(scopes.FilesWrite)
	never := time.Time{}
	tests := []struct {
		name      string
		caller    scopes.Set
		until     time.Time
		target    scopes.Set
		expires   time.Time
		permitted bool
	}{
		{"the same", ab, never, ab, never, true},
		{"fewer scopes", ab, never, a, never, true},
		{"shorter", ab, never, ab, soon, true},
		{"as long", a, soon, a, soon, true},
		{"other scope", a, never, b, never, false},
		{"one scope more", a, never, ab, never, false},
		{"one scope more, shorter", a, later, ab, soon, false},
		{"longer", a, soon, a, later, false},
		{"longer by a millisecond", a, soon, a, soon.Add(time.Millisecond), false},
		{"for ever", a, later, a, never, false},
	}
	members := func(set scopes.Set) (list []scopes.Scope) {
		for s := range set.All() {
			list = append(list, s)
		}
		return list
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, caller := h.expiringKey(alice, test.until, members(test.caller)...)
			target, _ := h.expiringKey(alice, test.expires, members(test.target)...)
			expiresAt := "null"
			if !test.expires.IsZero() {
				expiresAt = test.expires.Format(`"2006-01-02T15:04:05.000Z07:00"`)
			}
			scopesJSON, _ := test.target.MarshalJSON()
			created := h.do("POST", keysPath, caller, fmt.Sprintf(`{"name":"a","scopes":%s,"expiresAt":%s}`, scopesJSON, expiresAt))
			updated := h.do("PATCH", keysPath+"/"+target, caller, `{"name":"b"}`)
			rotated := h.do("POST", keysPath+"/"+target+"/rotate", caller, "")
			deleted := h.do("DELETE", keysPath+"/"+target, caller, "")
			if test.permitted {
				created.want(201, "")
				updated.want(200, "")
				rotated.want(200, "")
				deleted.want(204, "")
				return
			}
			created.want(403, "FORBIDDEN")
			updated.want(403, "FORBIDDEN")
			rotated.want(403, "FORBIDDEN")
			deleted.want(403, "FORBIDDEN")
			if key, err := h.api.Keys.Get(t.Context(), alice, target); err != nil || key.Name != "a key" || !key.Previous.IsZero() {
				t.Errorf("after refused changes: %+v, %v", key, err)
			}
		})
	}
}

func TestKeyDeletesItself(t *testing.T) {
	h := serve(t, newClock().config())
	id, token := h.key(alice, scopes.SecretsRead)
	h.do("DELETE", keysPath+"/"+id, token, "").want(204, "")
	h.do("DELETE", keysPath+"/"+id, token, "").want(401, "UNAUTHORIZED")
}

func TestRevokeSelf_CurrentValue_DeletesKey(t *testing.T) {
	h := serve(t, newClock().config())
	id, token := h.key(alice, scopes.SecretsRead)
	h.do("DELETE", keysPath+"/self", token, "").want(204, "")
	h.do("GET", keysPath+"/self", token, "").want(401, "UNAUTHORIZED")
	h.do("DELETE", keysPath+"/self", token, "").want(401, "UNAUTHORIZED")
	if _, err := h.api.Keys.Get(t.Context(), alice, id); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("Get: %v, want ErrNotFound", err)
	}
}

func TestRevokeSelf_ReplacedValue_KeepsCurrentValue(t *testing.T) {
	h := serve(t, newClock().config())
	id, old := h.key(alice, scopes.SecretsRead)
	_, fresh, err := h.api.Keys.Rotate(t.Context(), alice, id, apikeys.RotateParams{Grace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	h.do("DELETE", keysPath+"/self", old, "").want(204, "")
	h.do("GET", keysPath+"/self", old, "").want(401, "UNAUTHORIZED")
	h.do("GET", keysPath+"/self", fresh.Reveal(), "").want(200, "")
}

// The key itself never expires, but its replaced value expires after the grace period.
func TestEscalation_ValueInGracePeriod_CannotCreateLastingKey(t *testing.T) {
	h := serve(t, newClock().config())
	id, old := h.key(alice, scopes.FilesRead)
	_, fresh, err := h.api.Keys.Rotate(t.Context(), alice, id, apikeys.RotateParams{Grace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	h.do("POST", keysPath, old, `{"name":"a","scopes":["files:read"]}`).want(403, "FORBIDDEN")
	h.do("POST", keysPath, old, `{"name":"a","scopes":["files:read"],"expiresAt":"2026-01-31T13:00:00Z"}`).want(403, "FORBIDDEN")
	h.do("POST", keysPath, old, `{"name":"a","scopes":["files:read"],"expiresAt":"2026-01-31T12:59:59.999Z"}`).want(403, "FORBIDDEN")
	h.do("POST", keysPath, fresh.Reveal(), `{"name":"a","scopes":["files:read"]}`).want(201, "")
}

// A request made with the old value of a rotated key can delete the key but not change it, even if
// the key itself expires when the grace period ends.
func TestReplacedValue_OwnKey_CanOnlyBeDeleted(t *testing.T) {
	c := newClock()
	h := serve(t, c.config())
	for _, expires := range []time.Time{{}, c.Now().Add(time.Hour)} {
		id, old := h.expiringKey(alice, expires, scopes.AccountRead)
		fresh := h.do("POST", keysPath+"/"+id+"/rotate", old, "").want(200, "").text("key") // old has not been replaced yet, so it may rotate its key
		h.do("GET", keysPath, old, "").want(200, "")
		h.do("POST", keysPath+"/"+id+"/rotate", old, "").want(403, "FORBIDDEN")
		h.do("PATCH", keysPath+"/"+id, old, `{"name":"b"}`).want(403, "FORBIDDEN")
		h.do("PATCH", keysPath+"/"+id, fresh, `{"name":"b"}`).want(200, "")
		h.do("GET", keysPath, fresh, "").want(200, "")
		h.do("DELETE", keysPath+"/"+id, old, "").want(204, "")
		h.do("GET", keysPath, fresh, "").want(401, "UNAUTHORIZED")
	}
}

// The test uses a replaced value whose grace period ends when its key expires. It tries to create
// or rotate another key, which could then rotate the first key.
func TestReplacedValue_OtherKey_CannotTakeOver(t *testing.T) {
	c := newClock()
	h := serve(t, c.config())
	expires := c.Now().Add(time.Hour)
	other, _ := h.expiringKey(alice, expires, scopes.FilesRead)
	id, old := h.expiringKey(alice, expires, scopes.FilesRead)
	h.do("POST", keysPath+"/"+id+"/rotate", old, "").want(200, "")

	until := func(at time.Time) string {
		return `{"name":"a","scopes":["files:read"],"expiresAt":"` + at.Format("2006-01-02T15:04:05.000Z") + `"}`
	}
	h.do("POST", keysPath, old, until(expires)).want(403, "FORBIDDEN")
	h.do("POST", keysPath+"/"+other+"/rotate", old, "").want(403, "FORBIDDEN")
	h.do("DELETE", keysPath+"/"+other, old, "").want(403, "FORBIDDEN")

	// The value cannot manage a key that expires earlier, either, because the effects of that key,
	// such as webhooks, could outlive the value.
	short, shortToken := h.expiringKey(alice, expires.Add(-time.Minute), scopes.FilesRead)
	h.do("POST", keysPath, old, until(expires.Add(-time.Millisecond))).want(403, "FORBIDDEN")
	h.do("POST", keysPath+"/"+short+"/rotate", old, "").want(403, "FORBIDDEN")
	h.do("PATCH", keysPath+"/"+short, old, `{"name":"b"}`).want(403, "FORBIDDEN")
	h.do("DELETE", keysPath+"/"+short, old, "").want(403, "FORBIDDEN")
	h.do("GET", keysPath, shortToken, "").want(403, "FORBIDDEN") // the key still works
}

// A caller with a replaced value must not create a webhook, which would keep sending the account's
// data after the value has expired.
func TestReplacedValue_Webhooks_AreForbidden(t *testing.T) {
	h := serve(t, newClock().config())
	id, old := h.key(alice, scopes.AccountRead)
	hook := webhooksPath + "/" + h.do("POST", webhooksPath, old, newWebhook).want(201, "").text("id")
	h.do("POST", keysPath+"/"+id+"/rotate", old, "").want(200, "")
	for _, request := range []struct{ method, path, body string }{
		{"POST", webhooksPath, newWebhook},
		{"PATCH", hook, `{"url":"https://evil.example"}`},
		{"POST", hook + "/rotate-secret", ""},
		{"POST", hook + "/test", ""},
		{"POST", hook + "/recoveries", ""},
		{"POST", hook + "/deliveries/" + someEvent + "/redeliver", ""},
		{"DELETE", hook, ""},
	} {
		got := h.do(request.method, request.path, old, request.body).want(403, "FORBIDDEN")
		if !strings.Contains(got.message(), "replaced") {
			t.Errorf("%s %s: the message does not say why: %s", request.method, request.path, got.body)
		}
	}
	h.do("GET", hook, old, "").want(200, "")
}

// TestAuthorize checks when a host's policy is called, with which arguments, and how its result
// affects the response.
func TestAuthorize(t *testing.T) {
	type question struct {
		Account string
		Action  auth.Action
		Target  *auth.Target
	}
	var asked []question
	var refuse func(auth.Access) error
	config := newClock().config()
	config.Authorize = func(_ context.Context, caller auth.Principal, access auth.Access) error {
		asked = append(asked, question{caller.Account, access.Action, access.Target})
		return refuse(access)
	}
	h := serve(t, config)
	_, token := h.key(alice, scopes.FilesRead)
	target, _ := h.key(alice, scopes.AccountRead)
	const newKey = `{"name":"a","scopes":["files:write"],"expiresAt":"2026-02-01T00:00:00.0009Z"}`
	const newWebhook = `{"url":"https://example.com","events":["balance.low","bandwidth.limit_reached"]}`

	refuse = func(auth.Access) error { return nil } // allows actions that LeastPrivilege would refuse
	hook := h.do("POST", webhooksPath, token, newWebhook).want(201, "").text("id")
	account := scopes.Of(scopes.AccountRead)
	tests := []struct {
		method, path, body string
		status             int
		action             auth.Action
		target             *auth.Target
	}{
		{"GET", keysPath, "", 200, auth.ReadKeys, nil},
		{"HEAD", keysPath, "", 200, auth.ReadKeys, nil},
		{"GET", keysPath + "/" + target, "", 200, auth.ReadKeys, nil},
		{"GET", webhooksPath, "", 200, auth.ReadWebhooks, nil},
		{"GET", webhooksPath + "/" + hook, "", 200, auth.ReadWebhooks, nil},
		{"POST", keysPath, newKey, 201, auth.CreateKey, &auth.Target{Scopes: scopes.Of(scopes.FilesWrite), ExpiresAt: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)}},
		{"POST", webhooksPath, newWebhook, 201, auth.CreateWebhook, &auth.Target{Scopes: account}},
		{"PATCH", keysPath + "/" + target, `{"name":"b"}`, 200, auth.UpdateKey, &auth.Target{ID: target, Scopes: account}},
		{"POST", keysPath + "/" + target + "/rotate", "", 200, auth.RotateKey, &auth.Target{ID: target, Scopes: account}},
		{"DELETE", keysPath + "/" + target, "", 204, auth.DeleteKey, &auth.Target{ID: target, Scopes: account}},
		{"PATCH", webhooksPath + "/" + hook, `{"events":["bandwidth.limit_reached"]}`, 200, auth.UpdateWebhook, &auth.Target{ID: hook, Scopes: account}},
		{"PATCH", webhooksPath + "/" + hook, `{"events":["files.expiring"]}`, 200, auth.UpdateWebhook, &auth.Target{ID: hook, Scopes: scopes.Of(scopes.AccountRead, scopes.FilesRead)}},
		{"PATCH", webhooksPath + "/" + hook, `{"events":["balance.low"]}`, 200, auth.UpdateWebhook, &auth.Target{ID: hook, Scopes: scopes.Of(scopes.FilesRead, scopes.AccountRead)}},
		{"POST", webhooksPath + "/" + hook + "/rotate-secret", "", 200, auth.UpdateWebhook, &auth.Target{ID: hook, Scopes: scopes.Of(scopes.AccountRead, scopes.FilesRead)}},
		{"POST", webhooksPath + "/" + hook + "/recoveries", "", 202, auth.UpdateWebhook, &auth.Target{ID: hook, Scopes: scopes.Of(scopes.AccountRead, scopes.FilesRead)}},
		{"GET", webhooksPath + "/" + hook + "/deliveries", "", 200, auth.ReadWebhooks, nil},
		{"DELETE", webhooksPath + "/" + hook, "", 204, auth.DeleteWebhook, &auth.Target{ID: hook, Scopes: account}},
	}
	answers := []struct {
		err    error
		status int
		code   string
	}{
		{fmt.Errorf("not on a %w: Sunday", auth.ErrForbidden), 403, "FORBIDDEN"},
		{errors.New("policy server on Sunday"), 500, "INTERNAL_ERROR"},
		{nil, 0, ""},
	}
	for _, test := range tests {
		questions := []question{{alice, test.action, nil}}
		if test.target != nil {
			questions = append(questions, question{alice, test.action, test.target})
		}
		for _, answer := range answers {
			if answer.err == nil {
				answer.status = test.status
			}
			for i := range questions { // refuse at the first call, then at the second
				asked = nil
				refuse = func(auth.Access) error {
					if len(asked) > i {
						return answer.err
					}
					return nil
				}
				if answer.err == nil && i > 0 {
					continue // the request has already succeeded
				}
				got := h.do(test.method, test.path, token, test.body)
				if got.status != answer.status || test.method != "HEAD" && got.code() != answer.code {
					t.Errorf("%s %s, %v: got %d %s", test.method, test.path, answer.err, got.status, got.body)
				}
				if strings.Contains(got.body, "Sunday") {
					t.Errorf("%s %s: the policy's own words were shown: %s", test.method, test.path, got.body)
				}
				want := questions
				if answer.err != nil {
					want = questions[:i+1]
				}
				if diff := cmp.Diff(want, asked, cmp.Comparer(func(x, y scopes.Set) bool { return x == y })); diff != "" {
					t.Errorf("%s %s (-want +asked):\n%s", test.method, test.path, diff)
				}
			}
		}
	}
}

// The test checks the messages and required scopes in the 403 responses of the default policy.
func TestForbidden_DefaultPolicy_NamesMissingAuthority(t *testing.T) {
	h := serve(t, storageapi.Config{})
	_, token := h.key(alice, scopes.FilesWrite)
	for _, test := range []struct{ method, path, body, message, required string }{
		{"GET", keysPath, "", "account:read", "account:read"},
		{"POST", webhooksPath, "{}", "files:read", "files:read account:read"},
		{"POST", keysPath, `{"name":"a","scopes":["files:write","secrets:read"]}`, "whose scopes it holds", "files:write secrets:read"},
	} {
		got := h.do(test.method, test.path, token, test.body).want(403, "FORBIDDEN")
		required := strings.Join(got.failure().Error.RequiredScopes, " ")
		if !strings.Contains(got.message(), test.message) || required != test.required {
			t.Errorf("%s %s: %q requires %q, want a message with %q and %q", test.method, test.path, got.message(), required, test.message, test.required)
		}
		challenge := `ApiKey realm="storageapi", error="insufficient_scope", scope="` + test.required + `"`
		if header := got.header.Get("WWW-Authenticate"); header != challenge {
			t.Errorf("%s %s: WWW-Authenticate %q, want %q", test.method, test.path, header, challenge)
		}
	}
}

func TestBearer_Config_ReachesEveryRoute(t *testing.T) {
	h := serve(t, storageapi.Config{Bearer: true, Realm: "Acme"})
	id, token := h.key(alice, allScopes()...)
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	if got := h.do("GET", keysPath+"/self", "", "", bearer).want(200, "").object()["id"]; got != id {
		t.Errorf("own key: got %v, want %s", got, id)
	}
	created := h.do("POST", keysPath, "", `{"name":"a","scopes":["files:read"]}`, bearer).want(201, "").object()["id"].(string)
	h.do("POST", keysPath+"/"+created+"/rotate", "", "{}", bearer).want(200, "")
	h.do("DELETE", keysPath+"/"+created, "", "", bearer).want(204, "")
	got := h.do("GET", keysPath, token, "", bearer).want(401, "UNAUTHORIZED")
	if challenges := strings.Join(got.header.Values("WWW-Authenticate"), ", "); challenges != `ApiKey realm="Acme", Bearer realm="Acme"` {
		t.Errorf("both headers: challenges %s", challenges)
	}
}

func TestRevokeSelf_BearerToken_DeletesKey(t *testing.T) {
	config := newClock().config()
	config.Bearer = true
	h := serve(t, config)
	_, token := h.key(alice, scopes.SecretsRead)
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
	h.do("DELETE", keysPath+"/self", "", "", bearer).want(204, "")
	h.do("DELETE", keysPath+"/self", "", "", bearer).want(401, "UNAUTHORIZED")
}
