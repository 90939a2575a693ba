package dashboard_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/scopes"
)

func TestListKeys_NoKeys_ShowsHowToCreateOne(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.follow(s.get("")).want(http.StatusOK).says("No API keys yet", "Create your first key")
}

func TestListKeys(t *testing.T) {
	clock := testclock.At(noon)
	s := newSite(t, storageapi.Config{Keys: apikeys.Config{Now: clock.Now}})
	s.key(alice, "everything", time.Time{}, scopes.EnvironmentsRead, scopes.EnvironmentsWrite, scopes.FilesRead, scopes.FilesWrite, scopes.MembersRead)
	s.key(alice, "dying", noon.Add(72*time.Hour))
	s.key(alice, "dead", noon.Add(time.Hour))
	_, token := s.key(alice, "used", time.Time{})
	s.key(bob, "of bob", time.Time{})
	clock.Add(2 * time.Hour)
	s.valid(token)
	clock.Add(5 * time.Minute)
	list := s.get("api-keys").want(http.StatusOK)
	list.says("everything", "environments:read environments:write files:read files:write and 1 more",
		"dying", "Expires in 2 days", "dead", "Expired", "used", "5 minutes ago", "Never used", "20 Nov 2026").hides("of bob")
}

func TestKeyPages(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	for i := range 51 {
		s.key(alice, fmt.Sprintf("key %02d", i), time.Time{})
	}
	first := s.get("api-keys").says("key 50", "key 01", "1–50 of 51", "Older").hides("key 00", "Newest")
	_, after, found := strings.Cut(first.body, `api-keys?after=`)
	if !found {
		t.Fatal("no link to the next page")
	}
	after, _, _ = strings.Cut(after, `"`)
	s.get("api-keys?after="+html.UnescapeString(after)).says("key 00", "51 of 51", "Newest").hides("key 01", "Older")
	s.get("api-keys?name=key+0").says("10 keys").hides("Older", " of ")
	s.get("api-keys?after=key_0").says("No more API keys.")
	s.get("api-keys?after=%00").says("key 50", "1–50 of 51") // an invalid position means the first page
	after, _, _ = strings.Cut(after, "&")
	for _, invalid := range []string{"", "&before=-1", "&before=x", "&before=9999999999"} {
		s.get("api-keys?after=" + after + invalid).says("key 00").hides(" of ")
	}
}

func TestCreateKey(t *testing.T) {
	clock := testclock.At(noon)
	s := newSite(t, storageapi.Config{Keys: apikeys.Config{Now: clock.Now}})
	form := s.get("api-keys/new").want(http.StatusOK).says("Environments", "List and retrieve environments environments:read", "Read account info and usage").
		form("name", " nightly backup ", "scopes", "files:write", "scopes", "files:read", "expiry", "30")
	made := s.post("api-keys/new", form).want(http.StatusOK).says("API key created", "You won’t be able to see it again.")
	token := made.secret()
	if !s.valid(token) {
		t.Fatalf("%q is no key", token)
	}
	keys := s.keys()
	if len(keys) != 1 {
		t.Fatalf("%d keys", len(keys))
	}
	key := keys[0]
	if expiry := time.Date(2026, 12, 21, 0, 0, 0, 0, time.UTC); key.Name != "nightly backup" || key.Scopes != scopes.Of(scopes.FilesWrite, scopes.FilesRead) || !key.ExpiresAt.Equal(expiry) {
		t.Errorf("got %+v", key)
	}
	if want := `data-replace="../api-keys/` + key.ID + `"`; !strings.Contains(made.body, want) {
		t.Errorf("no %s", want)
	}

	// Sending the form again, as a reload does, must create nothing and show no value.
	clock.Add(time.Hour)
	again := s.post("api-keys/new", form).want(http.StatusOK).says("did not create another", "nightly backup").hides(token)
	// Sending the form again with another name, as a user may after the back button, must create
	// nothing, either.
	form.Set("name", "other")
	other := s.post("api-keys/new", form).want(http.StatusConflict).says("has already created a key").hides(token)
	if again.secret() != "" || other.secret() != "" || len(s.keys()) != 1 {
		t.Errorf("a form that was sent again made %d keys", len(s.keys()))
	}
	for _, path := range []string{"api-keys", "api-keys/" + key.ID, "api-keys/" + key.ID + "/rotate", "api-keys/" + key.ID + "/revoke"} {
		s.get(path).want(http.StatusOK).hides(token)
	}
	// With the form on that page, the user can create another key deliberately.
	s.post("api-keys/new", other.form("name", "other", "scopes", "files:read", "expiry", "never")).want(http.StatusOK)
	if keys := s.keys(); len(keys) != 2 || keys[0].Name != "other" || !keys[0].ExpiresAt.IsZero() {
		t.Errorf("got %+v", keys)
	}
}

func TestCreateKey_ExpiryDate_IsMidnightUTC(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.post("api-keys/new", s.get("api-keys/new").form("name", "a", "scopes", "files:read", "expiry", "date", "date", "2999-01-31")).want(http.StatusOK)
	if key := s.keys()[0]; !key.ExpiresAt.Equal(time.Date(2999, 1, 31, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("expires at %v", key.ExpiresAt)
	}
}

// All errors must be shown at once, next to their fields, and the form must keep the input.
func TestCreateKey_InvalidInput_ShowsAllErrors(t *testing.T) {
	const (
		name   = "Enter a name"
		scope  = "Select at least one scope"
		expiry = "Select when the key expires."
		day    = "Select the date"
	)
	tests := []struct {
		fields []string
		want   []string
	}{
		{nil, []string{name, scope, expiry}},
		{[]string{"name", "  ", "scopes", "files:all", "expiry", "date", "date", "soon"}, []string{name, scope, day}},
		{[]string{"name", "kept", "expiry", "never"}, []string{scope}},
		{[]string{"name", "kept", "scopes", "files:read", "expiry", "date", "date", "2020-01-01"}, []string{"Must be in the future."}},
		{[]string{"name", "kept", "scopes", "files:read", "expiry", "10000000"}, []string{expiry}},
		{[]string{"name", "tab\tkept", "scopes", "files:read", "expiry", "never"}, []string{"Must be 1 to 128 characters, without control characters."}},
		{[]string{"name", strings.Repeat("ö", 129), "scopes", "files:read", "expiry", "never"}, []string{"not 129."}},
	}
	s := newSite(t, storageapi.Config{})
	blank := s.get("api-keys/new")
	for _, test := range tests {
		got := s.post("api-keys/new", blank.form(test.fields...)).want(http.StatusUnprocessableEntity).says(test.want...).says("Nothing was saved")
		if errors := strings.Count(got.body, `class="error"`); errors != len(test.want) {
			t.Errorf("%q: %d errors, want %q", test.fields, errors, test.want)
		}
		if strings.Contains(strings.Join(test.fields, " "), "kept") && !strings.Contains(got.body, `kept"`) {
			t.Errorf("%q: the name is lost", test.fields)
		}
	}
	if len(s.keys()) != 0 {
		t.Errorf("got %+v", s.keys())
	}
}

func TestCreateKey_LimitReached_ShowsProblem(t *testing.T) {
	s := newSite(t, storageapi.Config{Keys: apikeys.Config{MaxPerAccount: 1}})
	s.key(alice, "a", time.Time{})
	s.post("api-keys/new", s.get("api-keys/new").form("name", "b", "scopes", "files:read", "expiry", "never")).
		want(http.StatusConflict).says("limit of API keys")
}

func TestRenameKey(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, _ := s.key(alice, "before", time.Time{})
	path := "api-keys/" + key.ID
	s.get(path).want(http.StatusOK).says("before", "List, retrieve, download files files:read", "Never used")
	s.follow(s.post(path, s.get(path).form("name", "after"))).want(http.StatusOK).says("after", "Key renamed.").hides("before")
	s.post(path, s.get(path).form("name", "")).want(http.StatusUnprocessableEntity).says("Must be 1 to 128 characters")
	if got := s.keys()[0].Name; got != "after" {
		t.Errorf("got %q", got)
	}
}

func TestRotateKey(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, before := s.key(alice, "a", time.Time{})
	path := "api-keys/" + key.ID + "/rotate"
	form := s.get(path).want(http.StatusOK).says("1 day").form("grace", "24h")
	token := s.post(path, form).want(http.StatusOK).says("API key rotated", "The previous value works until").secret()
	if !s.valid(token) || !s.valid(before) || token == before {
		t.Error("one of the values does not work")
	}
	s.get("api-keys/"+key.ID).says("This key was rotated", "It was last used just now").hides(token, before)

	// Sending the form again must not rotate the key again, so that the previous value stays valid.
	if again := s.post(path, form).want(http.StatusConflict).says("was not rotated again"); again.secret() != "" || !s.valid(token) || !s.valid(before) {
		t.Error("a form that was sent again rotated again")
	}
	next := s.post(path, s.get(path).says("The previous value still works").form("grace", "0s")).want(http.StatusOK).says("no longer works").secret()
	if !s.valid(next) || s.valid(token) || s.valid(before) {
		t.Error("a value works that should not, or the other way round")
	}
	s.post(path, s.get(path).form("grace", "1000000h")).want(http.StatusUnprocessableEntity).says("Select one of the options.")
}

func TestRevokeKey(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	key, token := s.key(alice, "of the intern", time.Time{})
	path := "api-keys/" + key.ID + "/revoke"
	s.get(path).want(http.StatusOK).says("Revoke “of the intern”?", "It has never been used.")
	if !s.valid(token) {
		t.Error("asking revokes")
	}
	s.follow(s.post(path, nil)).want(http.StatusOK).says("Key revoked", "No API keys yet")
	if s.valid(token) {
		t.Error("the key works")
	}
	s.post(path, nil).want(http.StatusNotFound)
	s.get("api-keys/" + key.ID).want(http.StatusNotFound)
}

func TestKeyPages_ShowHintsAndCreatorButNoValue(t *testing.T) {
	s := newSite(t, storageapi.Config{})
	s.pages = s.mount(dashboard.Config{Actor: func(*http.Request) string { return "mia <m@example.com>" }})
	form := s.get("api-keys/new").form("name", "ci", "scopes", "files:read", "expiry", "never")
	first := s.post("api-keys/new", form).want(http.StatusOK).secret()
	key := s.keys()[0]
	_, second, err := s.api.Keys.Rotate(t.Context(), alice, key.ID, apikeys.RotateParams{Grace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	s.get("api-keys").says(second.Hint()).hides(first, second.Reveal())
	s.get("api-keys/"+key.ID).says("Value "+second.Hint(), "The previous value, "+key.Hint+" , works until", "Created by mia <m@example.com>").
		hides(first, second.Reveal(), "m@example.com>")
	s.get("api-keys/" + key.ID + "/revoke").says(second.Hint())
	for _, token := range []string{first, second.Reveal()} { // search for each value, which must not stay in the URL
		found := s.follow(s.get("search?q=" + token))
		if at := found.at.String(); strings.Contains(at, token) {
			t.Errorf("the value is in the address %s", at)
		}
		s.follow(found).says("Created by mia")
	}

	ctx := audit.WithActor(t.Context(), audit.Actor{Kind: audit.ActorKey, ID: key.ID})
	made, _, err := s.api.Keys.Create(ctx, alice, apikeys.CreateParams{Name: "made", Scopes: scopes.Of(scopes.FilesRead)})
	if err != nil {
		t.Fatal(err)
	}
	s.get("api-keys/" + made.ID).says("Created by API key " + key.ID)
	byHost, _ := s.key(alice, "by the host", time.Time{})
	s.get("api-keys/" + byHost.ID).says("Created by The service")
}

// The page with a new value must show a command that works when pasted into a shell.
func TestKeyMade_ShowsCommand(t *testing.T) {
	for _, test := range []struct {
		prefix, apiURL, origin string
		want                   string
	}{
		{"", "", "https://app.example.com:8443", "https://app.example.com:8443/v2/api-keys/self"},
		{"/api/v1", "", "http://localhost:8080", "http://localhost:8080/api/v1/api-keys/self"},
		{"/", "", "null", "https://example.com/api-keys/self"},
		{"", "", "https://it's.example.com", `https://it'\''s.example.com/v2/api-keys/self`},
		{"/inner", "https://api.example.com/v2/", "https://app.example.com", "https://api.example.com/v2/api-keys/self"},
	} {
		s := newSite(t, storageapi.Config{Prefix: test.prefix})
		s.pages = s.mount(dashboard.Config{APIURL: test.apiURL})
		send := func(path string, form url.Values) *page {
			r := s.formRequest(path, form, "same-origin")
			r.Header.Set("Origin", test.origin)
			return s.do(r).want(http.StatusOK)
		}
		made := send("api-keys/new", s.get("api-keys/new").form("name", "a", "scopes", "files:read", "expiry", "never"))
		made.says("curl '" + test.want + "' -H 'Api-Key: " + made.secret() + "'")
		rotate := "api-keys/" + s.keys()[0].ID + "/rotate"
		made = send(rotate, s.get(rotate).form("grace", "24h"))
		made.says("curl '" + test.want + "' -H 'Api-Key: " + made.secret() + "'")
	}
}
