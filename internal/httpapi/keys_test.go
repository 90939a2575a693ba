package httpapi_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
)

func TestKeyLife(t *testing.T) {
	c := newClock()
	h := serve(t, c.config())
	adminID, admin := h.key(alice, slices.Collect(scopes.Specified().All())...)

	made := h.do("POST", keysPath, admin, `{"name":"CI & <deploy>","scopes":["files:write","files:read","files:write"],"expiresAt":"2026-03-01T01:30:00.1239+01:30"}`).want(201, "")
	id, token := made.text("id"), made.text("key")
	want := fmt.Sprintf(`{"id":%q,"key":%q,"name":"CI & <deploy>","scopes":["files:write","files:read"],"expiresAt":"2026-03-01T00:00:00.123Z","createdAt":"2026-01-31T12:00:00.000Z"}`, id, token)
	if made.body != want {
		t.Errorf("created: got  %s\nwant %s", made.body, want)
	}
	if !regexp.MustCompile(`^key_[0-9A-HJKMNP-TV-Z]{26}$`).MatchString(id) || !regexp.MustCompile(`^sak_[0-9A-Za-z]{38}$`).MatchString(token) {
		t.Errorf("got id %q, key %q", id, token)
	}
	wantHeader := http.Header{
		"Cache-Control":          {"no-store"},
		"Content-Length":         {fmt.Sprint(len(made.body + "\n"))},
		"Content-Type":           {"application/json; charset=utf-8"},
		"Location":               {keysPath + "/" + id},
		"X-Content-Type-Options": {"nosniff"},
	}
	if diff := cmp.Diff(wantHeader, made.header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}

	unused := fmt.Sprintf(`{"id":%q,"name":"CI & <deploy>","scopes":["files:write","files:read"],"expiresAt":"2026-03-01T00:00:00.123Z","createdAt":"2026-01-31T12:00:00.000Z","enabled":true,"labels":{},"hint":%q,"createdBy":{"kind":"key","id":%q},"lastUsedAt":null,"previous":null}`,
		id, hintOf(token), adminID)
	if got := h.do("GET", made.header.Get("Location"), admin, "").want(200, ""); got.body != unused {
		t.Errorf("read: got  %s\nwant %s", got.body, unused)
	}
	c.Add(time.Hour)
	h.do("GET", keysPath, token, "").want(403, "FORBIDDEN") // counts as a use
	used := strings.Replace(unused, `"lastUsedAt":null`, `"lastUsedAt":"2026-01-31T13:00:00.000Z"`, 1)
	used = strings.Replace(used, `"previous":null`, `"previous":null,"lastUsedFrom":"127.0.0.0/24","networksUsed":[{"network":"127.0.0.0/24","lastUsedOn":"2026-01-31"}]`, 1)
	if got := h.do("GET", keysPath+"?limit=1", admin, "").want(200, ""); !strings.Contains(got.body, `{"data":[`+used+`],`) {
		t.Errorf("listed: got  %s\nwant %s", got.body, used)
	}

	gone := h.do("DELETE", keysPath+"/"+id, admin, "").want(204, "")
	if gone.header.Get("Content-Type") != "" {
		t.Errorf("204 with Content-Type %q", gone.header.Get("Content-Type"))
	}
	h.do("GET", keysPath+"/"+id, admin, "").want(404, "NOT_FOUND")
	h.do("DELETE", keysPath+"/"+id, admin, "").want(404, "NOT_FOUND")
	h.do("GET", keysPath, token, "").want(401, "UNAUTHORIZED")
}

// TestCreateKeyFields tests values of each body field while all other fields are valid.
func TestCreateKeyFields(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	body := func(field, value string) string {
		fields := map[string]string{"name": `"a"`, "scopes": `["files:read"]`, "expiresAt": "null"}
		fields[field] = value
		return fmt.Sprintf(`{"name":%s,"scopes":%s,"expiresAt":%s}`, fields["name"], fields["scopes"], fields["expiresAt"])
	}
	good := []struct{ field, value, want string }{
		{"name", `"x"`, `"name":"x"`},
		{"name", `"` + strings.Repeat("é", 128) + `"`, strings.Repeat("é", 128)},
		{"name", `"\ud83d\ude00 \u0041"`, `"name":"😀 A"`},
		{"name", `"a b"`, `"name":"a b"`},
		{"scopes", `["account:read","files:read"]`, `"scopes":["account:read","files:read"]`},
		{"expiresAt", `null`, `"expiresAt":null`},
		{"expiresAt", `"2026-02-01"`, `"expiresAt":"2026-02-01T00:00:00.000Z"`},
		{"expiresAt", `"2026-01-31T12:00:00.001Z"`, `"expiresAt":"2026-01-31T12:00:00.001Z"`},
		{"expiresAt", `"2026-01-31T07:00:01-05:00"`, `"expiresAt":"2026-01-31T12:00:01.000Z"`},
	}
	for _, test := range good {
		got := h.do("POST", keysPath, admin, body(test.field, test.value)).want(201, "")
		if !strings.Contains(got.body, test.want) {
			t.Errorf("%s %s: got %s", test.field, test.value, got.body)
		}
	}
	before := h.do("GET", keysPath+"?limit=100", admin, "").body
	bad := []struct{ field, value, want string }{
		{"name", `""`, "name must be 1 to 128 characters"},
		{"name", `"` + strings.Repeat("é", 129) + `"`, "name must be 1 to 128 characters"},
		{"name", `"a\u0000"`, "name must be 1 to 128 characters, without control characters"},
		{"name", `"a\nb"`, "name must be"},
		{"name", `" "`, "name must not begin or end with a space"},
		{"name", `"a\u200b"`, "name must not contain U+200B"},
		{"name", `"\u2800"`, "name must have at least one visible character"},
		{"name", `"a\u200d"`, "name must not contain joiners, such as U+200D, except between visible characters"},
		{"name", `"\u0085"`, "name must be"},
		{"name", `1`, "name must be a string"},
		{"name", `null`, "name must be a string, not null"},
		{"scopes", `[]`, "scopes must name at least one scope"},
		{"scopes", `null`, "scopes must be an array of strings, not null"},
		{"scopes", `"files:read"`, "scopes must be an array of strings"},
		{"scopes", `["files:read",null]`, "scopes must contain only strings, not null"},
		{"scopes", `["files:read","Files:Read","*"]`, `unknown scope "Files:Read", "*"`},
		{"scopes", `[""]`, `unknown scope ""`},
		{"expiresAt", `"2026-01-31T12:00:00Z"`, "expiresAt must be in the future"},
		{"expiresAt", `"2026-01-31"`, "expiresAt must be in the future"},
		{"expiresAt", `"0001-01-01T00:00:00Z"`, "expiresAt must be in the future"},
		{"expiresAt", `"2027-01-01T00:00:00"`, "expiresAt must be an RFC 3339 date-time with an offset"},
		{"expiresAt", `"9999-12-31T23:59:59-01:00"`, "expiresAt must be before the year 10000"},
		{"expiresAt", `""`, "expiresAt must be"},
		{"expiresAt", `1798761600`, "expiresAt must be a string"},
		{"expiresAt", `null,"ExpiresAt":null`, `body has an unknown field "ExpiresAt"`},
		{"expiresAt", `null,"expires_at":"2027-01-01"`, `body has an unknown field "expires_at"`},
		{"expiresAt", `null,"expiresAt":"2027-01-01"`, "expiresAt must be given only once"},
	}
	for _, test := range bad {
		got := h.do("POST", keysPath, admin, body(test.field, test.value)).want(400, "VALIDATION_ERROR")
		if !strings.Contains(got.message(), test.want) || !strings.HasPrefix(got.message(), got.field()+" ") {
			t.Errorf("%s %s: got field %q, message %q, want %q", test.field, test.value, got.field(), got.message(), test.want)
		}
	}
	for _, body := range []string{" ", `[]`, `null`, `{}`, `{"name":"a"}`, `{"scopes":["files:read"]}`, `{"name":"a","scopes":["files:read"]}x`, "{\"name\":\"\xff\"}"} {
		h.do("POST", keysPath, admin, body).want(400, "VALIDATION_ERROR")
	}
	h.do("POST", keysPath, admin, "", func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }).want(400, "VALIDATION_ERROR")
	h.do("POST", keysPath, admin, "").want(415, "UNSUPPORTED_MEDIA_TYPE")
	if after := h.do("GET", keysPath+"?limit=100", admin, "").body; after != before {
		t.Errorf("a refused request left something behind:\n%s\n%s", before, after)
	}
}

func TestExpiry_AtTheInstant_IsUnauthorized(t *testing.T) {
	c := newClock()
	h := serve(t, c.config())
	_, token := h.expiringKey(alice, c.Now().Add(time.Second), scopes.AccountRead)
	c.Add(time.Second - time.Nanosecond)
	h.do("GET", keysPath, token, "").want(200, "")
	c.Add(time.Nanosecond)
	h.do("GET", keysPath, token, "").want(401, "UNAUTHORIZED")
}

// TestLists reads complete lists of keys and of webhooks.
func TestLists(t *testing.T) {
	h := serve(t, newClock().config())
	first, reader := h.key(alice, scopes.AccountRead)
	keys, hooks := []string{first}, []string(nil)
	for range 44 {
		id, _ := h.key(alice, scopes.FilesRead)
		keys = append(keys, id)
		h.key(bob, scopes.FilesRead)
	}
	for range 45 {
		made := h.do("POST", webhooksPath, reader, `{"url":"https://example.com/a","events":["balance.low"]}`).want(201, "")
		hooks = append(hooks, made.text("id"))
	}
	slices.Reverse(keys) // newest first
	slices.Reverse(hooks)
	for path, want := range map[string][]string{keysPath: keys, webhooksPath: hooks} {
		for limit, pages := range map[string]int{"": 3, "limit=1": 45, "limit=44": 2, "limit=45": 1, "limit=100": 1} {
			got, n := h.walk(path, reader, limit)
			if diff := cmp.Diff(want, got); diff != "" || n != pages {
				t.Errorf("%s?%s: %d pages, want %d (-want +got):\n%s", path, limit, n, pages, diff)
			}
		}
		for _, query := range []string{"limit=0", "limit=101", "limit=x", "cursor=", "cursor=x", "cursor=" + want[0], "limit=1&limit=2", "limit=%zz"} {
			h.do("GET", path+"?"+query, reader, "").want(400, "VALIDATION_ERROR")
		}
	}
	cursor := h.do("GET", keysPath+"?limit=1", reader, "").text("nextCursor")
	h.do("GET", webhooksPath+"?cursor="+cursor, reader, "").want(400, "VALIDATION_ERROR")

	// A cursor must stay valid even if the item that it was made from is deleted.
	if err := h.api.Keys.Delete(t.Context(), alice, keys[0], apikeys.DeleteParams{}); err != nil {
		t.Fatal(err)
	}
	next := h.do("GET", keysPath+"?limit=1&cursor="+cursor, reader, "").want(200, "")
	if !strings.Contains(next.body, keys[1]) {
		t.Errorf("after a deleted key: got %s, want %s", next.body, keys[1])
	}
}

// walk reads a complete list page by page. It returns the IDs and the number of pages.
func (h *host) walk(path, token, query string) (ids []string, pages int) {
	h.Helper()
	for cursor := ""; ; {
		page := h.do("GET", path+"?"+query+cursor, token, "").want(200, "").object()
		pages++
		for _, item := range page["data"].([]any) {
			ids = append(ids, item.(map[string]any)["id"].(string))
		}
		next, more := page["nextCursor"].(string)
		if more != page["hasMore"] || len(page) != 3 {
			h.Fatalf("hasMore %v with nextCursor %v", page["hasMore"], page["nextCursor"])
		}
		if !more {
			return ids, pages
		}
		cursor = "&cursor=" + next
	}
}
