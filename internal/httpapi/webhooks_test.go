package httpapi_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

func TestWebhookLife(t *testing.T) {
	h := serve(t, newClock().config())
	_, token := h.key(alice, scopes.AccountRead, scopes.FilesRead)

	made := h.do("POST", webhooksPath, token, `{"url":"https://example.com/h?a=1&b=<2>","events":["balance.low","files.expiring","balance.low"],"balanceThreshold":"0.5"}`).want(201, "")
	id, secret := made.text("id"), made.text("secret")
	createdAt := made.text("createdAt")
	want := fmt.Sprintf(`{"id":%q,"url":"https://example.com/h?a=1&b=<2>","events":["balance.low","files.expiring"],"active":true,"secret":%q,"createdAt":%q,"balanceThreshold":"0.5"}`, id, secret, createdAt)
	if made.body != want {
		t.Errorf("created: got  %s\nwant %s", made.body, want)
	}
	for pattern, text := range map[string]string{
		`^wh_[0-9A-HJKMNP-TV-Z]{26}$`:                  id,
		`^whsec_[0-9A-Za-z+/]{43}=$`:                   secret,
		`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`:     createdAt,
		`^/v2/notifications/webhooks/wh_[0-9A-Z]{26}$`: made.header.Get("Location"),
		`^no-store$`: made.header.Get("Cache-Control"),
	} {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("got %q, want %s", text, pattern)
		}
	}

	shown := strings.Replace(want, fmt.Sprintf(`"secret":%q,`, secret), "", 1)
	shown = strings.TrimSuffix(shown, "}") + `,"offReason":null,"failingSince":null,"previousSecretExpiresAt":null}`
	if got := h.do("GET", made.header.Get("Location"), token, "").want(200, ""); got.body != shown {
		t.Errorf("read: got  %s\nwant %s", got.body, shown)
	}
	list := `{"data":[` + shown + `],"nextCursor":null,"hasMore":false}`
	if got := h.do("GET", webhooksPath, token, "").want(200, ""); got.body != list {
		t.Errorf("listed: got  %s\nwant %s", got.body, list)
	}
	h.do("DELETE", webhooksPath+"/"+id, token, "").want(204, "")
	h.do("GET", webhooksPath+"/"+id, token, "").want(404, "NOT_FOUND")
	h.do("DELETE", webhooksPath+"/"+id, token, "").want(404, "NOT_FOUND")
}

// A chosen secret is in the response to the creation, signs, and is in no other response.
func TestCreateWebhook_ChosenSecret_IsUsed(t *testing.T) {
	h := serve(t, newClock().config())
	admin, secret := h.admin(alice), "whsec_"+strings.Repeat("A", 32)
	body := fmt.Sprintf(`{"url":"https://example.com","events":["balance.low"],"secret":%q}`, secret)
	made := h.do("POST", webhooksPath, admin, body, idempotent("a")).want(201, "")
	got, err := h.api.Webhooks.Get(t.Context(), alice, made.text("id"))
	if err != nil || made.text("secret") != secret || got.Secret.Reveal() != secret {
		t.Errorf("created %s, stored %s, %v", made.body, got.Secret.Reveal(), err)
	}
	again := h.do("POST", webhooksPath, admin, body, idempotent("a")).want(200, "")
	for _, shown := range []reply{again, h.do("GET", webhooksPath+"/"+made.text("id"), admin, ""), h.do("GET", webhooksPath, admin, "")} {
		if strings.Contains(shown.body, "whsec_") {
			t.Errorf("shown again: %s", shown.body)
		}
	}
	for _, invalid := range []string{"", strings.Repeat("A", 32), secret[:len(secret)-4], secret + strings.Repeat("A", 60), secret[:len(secret)-1] + "-", secret + " "} {
		body := fmt.Sprintf(`{"url":"https://example.com","events":["balance.low"],"secret":%q}`, invalid)
		if got := h.do("POST", webhooksPath, admin, body).want(400, "VALIDATION_ERROR"); got.field() != "secret" {
			t.Errorf("secret %q: got %s", invalid, got.body)
		}
	}
}

// If the creation sets no threshold, the response must have exactly the fields of docs/spec.md,
// section 4.2.
func TestCreateWebhook_NoThreshold_HasFieldsOfSpecification(t *testing.T) {
	h := serve(t, newClock().config())
	made := h.do("POST", webhooksPath, h.admin(alice), `{"url":"https://example.com","events":["balance.low"],"balanceThreshold":null}`).want(201, "")
	want := fmt.Sprintf(`{"id":%q,"url":"https://example.com","events":["balance.low"],"active":true,"secret":%q,"createdAt":%q}`, made.text("id"), made.text("secret"), made.text("createdAt"))
	if made.body != want {
		t.Errorf("got  %s\nwant %s", made.body, want)
	}
}

// TestCreateWebhookFields tests values of each body field while all other fields are valid.
func TestCreateWebhookFields(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	body := func(field, value string) string {
		fields := map[string]string{"url": `"https://example.com"`, "events": `["balance.low"]`, "balanceThreshold": "null"}
		fields[field] = value
		return fmt.Sprintf(`{"url":%s,"events":%s,"balanceThreshold":%s}`, fields["url"], fields["events"], fields["balanceThreshold"])
	}
	url2048 := "https://example.com/" + strings.Repeat("a", 2048-20)
	for _, good := range []struct{ field, value string }{
		{"url", `"https://example.com:8443/a?b=c"`},
		{"url", `"HTTPS://EXAMPLE.COM"`},
		{"url", `"` + url2048 + `"`},
		{"events", `["files.expiring","balance.low","bandwidth.limit_approaching","bandwidth.limit_reached","transactions.limit_approaching","transactions.limit_reached"]`},
		{"balanceThreshold", `"0.000000001"`},
		{"balanceThreshold", `"10000000000"`},
		{"balanceThreshold", `"12.50"`},
	} {
		h.do("POST", webhooksPath, admin, body(good.field, good.value)).want(201, "")
	}
	before := h.do("GET", webhooksPath+"?limit=100", admin, "").body
	for _, bad := range []struct{ field, value, want string }{
		{"url", `""`, "url is required"},
		{"url", `null`, "url must be a string, not null"},
		{"url", `"http://example.com"`, "url must begin with https://"},
		{"url", `"ftp://example.com"`, "url must begin with https://"},
		{"url", `"example.com"`, "url must"},
		{"url", `"https://"`, "url must have a host"},
		{"url", `"https://user:pass@example.com"`, "url must not contain a user name"},
		{"url", `"https://example.com/#a"`, "url must not have a fragment"},
		{"url", `"` + url2048 + `a"`, "url must be at most 2,048 characters"},
		{"url", `"https://127.0.0.1"`, "url must be a public address, not one in a private or reserved network"},
		{"url", `"https://[::1]"`, "url must be a public address, not one in a private or reserved network"},
		{"url", `"https://localhost"`, "url must be a public address, not one in a private or reserved network"},
		{"url", `"https://168.63.129.16"`, "url must be a public address, not one in a private or reserved network"},
		{"url", `"https://169.254.169.254/latest"`, "url must be a public address, not one in a private or reserved network"},
		{"events", `[]`, "events must be one or more of files.expiring, "},
		{"events", `null`, "events must be an array of strings, not null"},
		{"events", `"balance.low"`, "events must be an array of strings, not a string"},
		{"events", `["balance.low","balance.high"]`, `unknown: "balance.high"`},
		{"events", `["*","balance.low"]`, `must be "*" alone`},
		{"balanceThreshold", `10`, "balanceThreshold must be a string, not a number"},
		{"balanceThreshold", `"0"`, "balanceThreshold must be greater than 0"},
		{"balanceThreshold", `"0.000000000"`, "balanceThreshold must be greater than 0"},
		{"balanceThreshold", `"-1"`, "balanceThreshold must be a decimal amount of SUI"},
		{"balanceThreshold", `"1e3"`, "balanceThreshold must be a decimal amount of SUI"},
		{"balanceThreshold", `"1,5"`, "balanceThreshold must be a decimal amount of SUI"},
		{"balanceThreshold", `""`, "balanceThreshold must be a decimal amount of SUI"},
		{"balanceThreshold", `"0.0000000001"`, "balanceThreshold must have at most 9 decimals"},
		{"balanceThreshold", `"99999999999999999999"`, "balanceThreshold must be at most"},
		{"balanceThreshold", `null,"active":true`, `body has an unknown field "active"`},
		{"balanceThreshold", `null,"URL":"https://example.com"`, `body has an unknown field "URL"`},
	} {
		got := h.do("POST", webhooksPath, admin, body(bad.field, bad.value)).want(400, "VALIDATION_ERROR")
		if !strings.Contains(got.message(), bad.want) || !strings.HasPrefix(got.message(), got.field()+" ") {
			t.Errorf("%s %s: got field %q, message %q, want %q", bad.field, bad.value, got.field(), got.message(), bad.want)
		}
	}
	for _, body := range []string{`{}`, `{"url":"https://example.com"}`, `{"events":["balance.low"]}`} {
		h.do("POST", webhooksPath, admin, body).want(400, "VALIDATION_ERROR")
	}
	after := h.do("GET", webhooksPath+"?limit=100", admin, "").body
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("a refused request left something behind:\n%s", diff)
	}
}

// A webhook on hold must be shown as such, have a different tag, and refuse test events.
func TestWebhookOnHold(t *testing.T) {
	store := memory.New()
	config := newClock().config()
	config.Store, config.Path = store, ""
	h := serve(t, config)
	token := h.admin(alice)
	made := h.do("POST", webhooksPath, token, `{"url":"https://example.com/","events":["balance.low"]}`).want(201, "")
	at := made.header.Get("Location")
	before := h.do("GET", at, token, "").want(200, "")
	hold := func(held bool) {
		t.Helper()
		_, err := store.UpdateWebhook(t.Context(), alice, made.text("id"), func(w *webhooks.Webhook, _ *audit.Entry) error {
			w.Held = held
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	hold(true)
	held := h.do("GET", at, token, "").want(200, "")
	if want := strings.Replace(before.body, `,"balanceThreshold"`, `,"held":true,"balanceThreshold"`, 1); held.body != want {
		t.Errorf("got  %s\nwant %s", held.body, want)
	}
	if held.header.Get("ETag") == before.header.Get("ETag") {
		t.Error("the ETag is the same")
	}
	h.do("POST", at+"/test", token, "").want(409, "CONFLICT")
	h.do("PATCH", at, token, `{"held":false}`).want(400, "VALIDATION_ERROR")
	hold(false)
	if after := h.do("GET", at, token, "").want(200, ""); after.body != before.body || after.header.Get("ETag") != before.header.Get("ETag") {
		t.Errorf("got %s, before %s", after.body, before.body)
	}
}
