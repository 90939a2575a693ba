package auth_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

func newBearer(t *testing.T) *auth.Authenticator {
	t.Helper()
	a, err := auth.New(allKeys, auth.Config{Bearer: true, Realm: "Acme Storage"})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestBearer_OneKeyInEitherHeader_IsAccepted(t *testing.T) {
	a := newBearer(t)
	for name, header := range map[string]http.Header{
		"Api-Key":                     {"Api-Key": {"writer"}},
		"Bearer":                      {"Authorization": {"Bearer writer"}},
		"lower case":                  {"Authorization": {"bearer writer"}},
		"several spaces":              {"Authorization": {"Bearer   writer"}},
		"Api-Key beside Basic":        {"Api-Key": {"writer"}, "Authorization": {"Basic d3JpdGVyOg=="}},
		"Api-Key beside other scheme": {"Api-Key": {"writer"}, "Authorization": {"Bearers reader"}},
	} {
		r := request()
		r.Header = header
		if response, body := serve(t, a.Handler(principal), r); response.StatusCode != http.StatusOK || body != "acct_2 key_writer" {
			t.Errorf("%s: got %d %s, want 200 acct_2 key_writer", name, response.StatusCode, body)
		}
		if got := a.Token(r); got != "writer" {
			t.Errorf("%s: Token = %q, want writer", name, got)
		}
	}
}

func TestBearer_NoneOrSeveralKeys_AreUnauthorizedAlike(t *testing.T) {
	a := newBearer(t)
	const want = `{"error":{"code":"UNAUTHORIZED","message":"The key is missing, invalid or expired. Send it in one header: Api-Key, or Authorization with the scheme Bearer."}}`
	for name, header := range map[string]http.Header{
		"none":                     {},
		"both, the same":           {"Api-Key": {"reader"}, "Authorization": {"Bearer reader"}},
		"both, one unknown":        {"Api-Key": {"reader"}, "Authorization": {"Bearer nobody"}},
		"both, one without value":  {"Api-Key": {"reader"}, "Authorization": {"Bearer"}},
		"Bearer twice":             {"Authorization": {"Bearer reader", "bearer reader"}},
		"Bearer, unknown":          {"Authorization": {"Bearer nobody"}},
		"in another scheme":        {"Authorization": {"ApiKey reader"}},
		"without a scheme":         {"Authorization": {"reader"}},
		"scheme and tab":           {"Authorization": {"Bearer\treader"}},
		"in Proxy-Authorization":   {"Proxy-Authorization": {"Bearer reader"}},
		"two keys in one header":   {"Authorization": {"Bearer reader, Bearer reader"}},
		"Api-Key with the scheme":  {"Api-Key": {"Bearer reader"}},
		"Api-Key twice, no Bearer": {"Api-Key": {"reader", "reader"}},
	} {
		r := request()
		r.Header = header
		response, body := serve(t, a.Handler(unreachable(t)), r)
		if response.StatusCode != http.StatusUnauthorized || body != want {
			t.Errorf("%s: got %d %s, want 401 %s", name, response.StatusCode, body, want)
		}
		challenges := []string{`ApiKey realm="Acme Storage"`, `Bearer realm="Acme Storage"`}
		if diff := cmp.Diff(challenges, response.Header.Values("WWW-Authenticate")); diff != "" {
			t.Errorf("%s: challenges (-want +got):\n%s", name, diff)
		}
	}
}

func TestBearer_ScopeMissing_IsNamedForBothSchemes(t *testing.T) {
	r := request()
	r.Header.Set("Authorization", "Bearer reader")
	response, _ := serve(t, newBearer(t).Require(scopes.FilesWrite, unreachable(t)), r)
	const missing = ` realm="Acme Storage", error="insufficient_scope", scope="files:write"`
	if diff := cmp.Diff([]string{"ApiKey" + missing, "Bearer" + missing}, response.Header.Values("WWW-Authenticate")); diff != "" {
		t.Errorf("challenges (-want +got):\n%s", diff)
	}
}

func TestNew_InvalidRealm_ReturnsError(t *testing.T) {
	for _, realm := range []string{`a"b`, `a\b`, "a\nb", "é", strings.Repeat("a", 65)} {
		if _, err := auth.New(allKeys, auth.Config{Realm: realm}); err == nil || !strings.Contains(err.Error(), "Realm must") {
			t.Errorf("%q: err = %v, want an error that names Realm", realm, err)
		}
	}
}
