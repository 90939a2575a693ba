package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi/scopes"
)

func ifMatch(tags ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header["If-Match"] = tags }
}

func TestRenameKey(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	id, token := h.key(alice, scopes.FilesRead)
	path := keysPath + "/" + id
	before := h.do("GET", path, admin, "").want(200, "")
	renamed := h.do("PATCH", path, admin, `{"name":"CI & <deploy>"}`).want(200, "")
	if want := strings.Replace(before.body, `"a key"`, `"CI & <deploy>"`, 1); renamed.body != want {
		t.Errorf("renamed: got  %s\nwant %s", renamed.body, want)
	}
	got := h.do("GET", path, admin, "").want(200, "")
	if got.body != renamed.body || got.header.Get("ETag") != renamed.header.Get("ETag") || got.header.Get("ETag") == before.header.Get("ETag") {
		t.Errorf("read: got %s %s, want %s %s", got.header.Get("ETag"), got.body, renamed.header.Get("ETag"), renamed.body)
	}
	if same := h.do("PATCH", path, admin, `{}`).want(200, ""); same.body != got.body {
		t.Errorf("nothing changed: got %s", same.body)
	}
	for body, want := range map[string]string{
		`{"name":null}`:                        "name must be a string, not null",
		`{"name":""}`:                          "name must be 1 to 128 characters",
		`{"name":1}`:                           "name must be a string",
		`{"name":"b","name":"c"}`:              "name must be given only once",
		`{"scopes":["files:write"]}`:           `body has an unknown field "scopes"; the fields are name, enabled, expiresAt, labels`,
		`{"labels":null}`:                      "labels must be an object, not null",
		`{"labels":{"a":1}}`:                   "labels must have only strings as values, not a number",
		`{"labels":{"a":"b","a":null}}`:        `labels must have "a" only once`,
		`{"labels":{"":"a"}}`:                  "labels must have names of 1 to 64 characters",
		`{"enabled":null}`:                     "enabled must be a boolean, not null",
		`{"enabled":"no"}`:                     "enabled must be a boolean, not a string",
		`{"expiresAt":"tomorrow"}`:             "expiresAt must be an RFC 3339 date-time",
		`{"expiresAt":"2026-01-31T12:00:00Z"}`: "expiresAt must be in the future", // exactly now
		`{"name":"b","lastUsedAt":1}`:          `body has an unknown field "lastUsedAt"`,
		`[]`:                                   "body must be one JSON object",
	} {
		if got := h.do("PATCH", path, admin, body).want(400, "VALIDATION_ERROR"); !strings.Contains(got.message(), want) {
			t.Errorf("%s: got message %q, want %q", body, got.message(), want)
		}
	}
	h.do("PATCH", path, admin, "").want(415, "UNSUPPORTED_MEDIA_TYPE")
	h.do("PATCH", path, token, `{"name":"itself"}`).want(200, "")
	h.do("PATCH", path, h.admin(bob), `{"name":"b"}`).want(404, "NOT_FOUND")
	h.do("PATCH", keysPath+"/x", admin, `{"name":"b"}`).want(404, "NOT_FOUND")
}

func TestRotateKey(t *testing.T) {
	c := newClock()
	h := serve(t, c.config())
	admin := h.admin(alice)
	id, first := h.key(alice, scopes.AccountRead)
	path := keysPath + "/" + id
	before := h.do("GET", path, admin, "").want(200, "")
	use := func(token string, status int) {
		t.Helper()
		h.do("GET", webhooksPath, token, "").want(status, codeOf(status))
	}
	rotate := func(body string) reply { t.Helper(); return h.do("POST", path+"/rotate", admin, body).want(200, "") }

	use(first, 200)
	c.Add(time.Hour)
	rotated := rotate("")
	second := rotated.text("key")
	want := fmt.Sprintf(`{"id":%q,"key":%q,"name":"a key","scopes":["account:read"],"expiresAt":null,"createdAt":"2026-01-31T12:00:00.000Z","enabled":true,"labels":{},"hint":%q,"createdBy":{"kind":"host","id":null},"lastUsedAt":"2026-01-31T12:00:00.000Z","previous":{"hint":%q,"expiresAt":"2026-02-01T13:00:00.000Z","lastUsedAt":"2026-01-31T12:00:00.000Z"},"lastUsedFrom":"127.0.0.0/24","scopesUsed":[{"scope":"account:read","lastUsedOn":"2026-01-31"}],"networksUsed":[{"network":"127.0.0.0/24","lastUsedOn":"2026-01-31"}]}`,
		id, second, hintOf(second), hintOf(first))
	if rotated.body != want {
		t.Errorf("rotated: got  %s\nwant %s", rotated.body, want)
	}
	if tag := rotated.header.Get("ETag"); tag == "" || tag == before.header.Get("ETag") {
		t.Errorf("ETag %s after a rotation, was %s", tag, before.header.Get("ETag"))
	}
	use(first, 200)
	c.Add(time.Hour)
	use(second, 200)
	shown := strings.Replace(want, fmt.Sprintf(`"key":%q,`, second), "", 1)
	shown = strings.Replace(shown, `"lastUsedAt":"2026-01-31T12:00:00.000Z","previous"`, `"lastUsedAt":"2026-01-31T14:00:00.000Z","previous"`, 1)
	shown = strings.Replace(shown, `"lastUsedAt":"2026-01-31T12:00:00.000Z"},`, `"lastUsedAt":"2026-01-31T13:00:00.000Z"},`, 1)
	for _, got := range []reply{h.do("GET", path, admin, ""), h.do("GET", keysPath, admin, ""), h.do("PATCH", path, admin, "{}")} {
		if !strings.Contains(got.body, shown) || strings.Contains(got.body, second) {
			t.Errorf("shown: got  %s\nwant %s", got.body, shown)
		}
	}

	// After another rotation, two of the three values are valid.
	third := rotate(`{"graceSeconds":60}`).text("key")
	use(first, 401)
	use(second, 200)
	use(third, 200)
	c.Add(time.Minute - time.Millisecond)
	use(second, 200)
	c.Add(time.Millisecond)
	use(second, 401)
	use(third, 200)
	if got := h.do("GET", path, admin, "").want(200, ""); got.object()["previous"] != nil {
		t.Errorf("a value that is dead is shown: %s", got.body)
	}
	for _, body := range []string{`{"graceSeconds":0}`, `{"graceSeconds":0.0}`} {
		now := rotate(body)
		if now.object()["previous"] != nil {
			t.Errorf("%s: got %s", body, now.body)
		}
		use(third, 401)
		use(now.text("key"), 200)
	}
	for body, seconds := range map[string]int{`{}`: 86400, `{"graceSeconds":null}`: 86400, `{"graceSeconds":31536000}`: 31536000, `{"graceSeconds":1e2}`: 100} {
		until := c.Now().Add(time.Duration(seconds) * time.Second).Format("2006-01-02T15:04:05.000Z")
		if got := rotate(body).object()["previous"].(map[string]any)["expiresAt"]; got != until {
			t.Errorf("%s: the value before dies at %v, want %s", body, got, until)
		}
	}
	for body, want := range map[string]string{
		`{"graceSeconds":-1}`:       "graceSeconds must be a whole number from 0 to 31536000",
		`{"graceSeconds":31536001}`: "graceSeconds must be a whole number from 0 to 31536000",
		`{"graceSeconds":1e300}`:    "graceSeconds must be a whole number from 0 to 31536000",
		`{"graceSeconds":0.5}`:      "graceSeconds must be a whole number",
		`{"graceSeconds":"60"}`:     "graceSeconds must be a whole number, not a string",
		`{"grace":60}`:              `body has an unknown field "grace"; the fields are graceSeconds`,
		` `:                         "body must be one JSON object",
	} {
		if got := h.do("POST", path+"/rotate", admin, body).want(400, "VALIDATION_ERROR"); !strings.Contains(got.message(), want) {
			t.Errorf("%s: got message %q, want %q", body, got.message(), want)
		}
	}
	h.do("POST", path+"/rotate", admin, "{}", func(r *http.Request) { r.Header.Del("Content-Type") }).want(415, "UNSUPPORTED_MEDIA_TYPE")
	h.do("POST", path+"/rotate", h.admin(bob), "").want(404, "NOT_FOUND")
}

// A value must not outlive its key.
func TestRotateKey_GracePeriodBeyondExpiry_EndsWithKey(t *testing.T) {
	c := newClock()
	h := serve(t, c.config())
	admin := h.admin(alice)
	id, old := h.expiringKey(alice, c.Now().Add(time.Hour), scopes.AccountRead)
	rotated := h.do("POST", keysPath+"/"+id+"/rotate", admin, "").want(200, "")
	if !strings.Contains(rotated.body, `"previous":{"hint":"`+hintOf(old)+`","expiresAt":"2026-01-31T13:00:00.000Z"`) {
		t.Errorf("got %s", rotated.body)
	}
	c.Add(time.Hour)
	h.do("GET", keysPath, old, "").want(401, "UNAUTHORIZED")
	h.do("GET", keysPath, rotated.text("key"), "").want(401, "UNAUTHORIZED")
}

func codeOf(status int) string { return map[int]string{401: "UNAUTHORIZED"}[status] }

// TestKeyIfMatch sends If-Match with each kind of change to a key.
func TestKeyIfMatch(t *testing.T) {
	c := newClock()
	h := serve(t, c.config())
	admin := h.admin(alice)
	id, token := h.key(alice, scopes.FilesRead)
	path := keysPath + "/" + id
	tag := func() string { return h.do("GET", path, admin, "").want(200, "").header.Get("ETag") }

	// Neither uses of the key nor the passing of time may change the tag.
	first := tag()
	h.do("GET", keysPath, token, "").want(403, "FORBIDDEN")
	c.Add(time.Hour)
	if tag() != first || h.do("HEAD", path, admin, "").header.Get("ETag") != first {
		t.Error("the tag changes by itself")
	}
	another, _ := h.key(alice, scopes.FilesRead)
	if h.do("GET", keysPath+"/"+another, admin, "").header.Get("ETag") == first {
		t.Error("two keys have one tag")
	}

	h.do("PATCH", path, admin, `{"name":"b"}`, ifMatch(first)).want(200, "")
	for _, stale := range [][]string{{first}, {`"x"`, first}, {"W/" + tag()}, {`""`}} {
		for _, request := range [][3]string{{"PATCH", path, `{"name":"c"}`}, {"POST", path + "/rotate", ""}, {"DELETE", path, ""}} {
			h.do(request[0], request[1], admin, request[2], ifMatch(stale...)).want(412, "PRECONDITION_FAILED")
		}
	}
	for _, malformed := range [][]string{{""}, {"x"}, {first, "*"}, {first + first}, {`"`}} {
		for _, request := range [][3]string{{"PATCH", path, `{"name":"c"}`}, {"POST", path + "/rotate", ""}, {"DELETE", path, ""}} {
			got := h.do(request[0], request[1], admin, request[2], ifMatch(malformed...)).want(400, "VALIDATION_ERROR")
			if !strings.HasPrefix(got.message(), "If-Match must be") {
				t.Errorf("%q: %s", malformed, got.message())
			}
		}
	}
	if got := h.do("GET", path, admin, ""); got.text("name") != "b" || got.object()["previous"] != nil {
		t.Errorf("a refused request changed something: %s", got.body)
	}
	h.do("PATCH", path, admin, `{"name":"c"}`, ifMatch(`"x"`, tag())).want(200, "")
	h.do("PATCH", path, admin, `{"name":"d"}`, ifMatch("*")).want(200, "")
	rotated := h.do("POST", path+"/rotate", admin, "", ifMatch(`"x", `+tag()+`, W/"y"`)).want(200, "").header.Get("ETag")
	if rotated != tag() {
		t.Errorf("ETag of a rotation %s, then %s", rotated, tag())
	}
	h.do("DELETE", path, admin, "", ifMatch(rotated)).want(204, "")
	h.do("PATCH", path, admin, `{"name":"e"}`, ifMatch("*")).want(404, "NOT_FOUND")
}

// The test sends conflicting changes concurrently.
func TestKeyIfMatch_ConcurrentChanges_OneSucceeds(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	atOnce := func(n int, request func(i int) reply) (statuses []int) {
		statuses = make([]int, n)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { statuses[i] = request(i).status })
		}
		all.Wait()
		slices.Sort(statuses)
		return statuses
	}
	for range 5 {
		id, _ := h.key(alice, scopes.FilesRead)
		path := keysPath + "/" + id
		tag := h.do("GET", path, admin, "").header.Get("ETag")

		// Of the requests with the same tag, exactly one succeeds.
		got := atOnce(4, func(i int) reply {
			if i%2 == 0 {
				return h.do("PATCH", path, admin, fmt.Sprintf(`{"name":"name %d"}`, i), ifMatch(tag))
			}
			return h.do("POST", path+"/rotate", admin, "", ifMatch(tag))
		})
		if !slices.Equal(got, []int{200, 412, 412, 412}) {
			t.Errorf("changes of one state: %v", got)
		}
		tag = h.do("GET", path, admin, "").header.Get("ETag")
		got = atOnce(2, func(i int) reply {
			if i == 0 {
				return h.do("DELETE", path, admin, "", ifMatch(tag))
			}
			return h.do("PATCH", path, admin, `{"name":"another"}`, ifMatch(tag))
		})
		if !slices.Equal(got, []int{200, 412}) && !slices.Equal(got, []int{204, 404}) {
			t.Errorf("a deletion and a change of one state: %v", got)
		}

		// Without If-Match, every change succeeds except those made after the deletion.
		id, _ = h.key(alice, scopes.FilesRead)
		path = keysPath + "/" + id
		got = atOnce(6, func(i int) reply {
			switch {
			case i == 0:
				return h.do("DELETE", path, admin, "")
			case i%2 == 0:
				return h.do("PATCH", path, admin, `{"name":"another"}`)
			}
			return h.do("POST", path+"/rotate", admin, "")
		})
		if i := slices.Index(got, 204); i < 0 || slices.ContainsFunc(got[i+1:], func(status int) bool { return status != 404 }) {
			t.Errorf("a deletion and changes: %v", got)
		}
		h.do("GET", path, admin, "").want(404, "NOT_FOUND")
		if listed := h.do("GET", keysPath, admin, "").body; strings.Contains(listed, id) {
			t.Errorf("a deleted key is listed: %s", listed)
		}
	}
}
