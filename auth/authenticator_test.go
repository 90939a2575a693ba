package auth_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// principal is a handler that responds with the caller.
var principal = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	p, ok := auth.PrincipalFrom(r.Context())
	if !ok {
		http.Error(w, "nobody", http.StatusTeapot)
		return
	}
	_, _ = io.WriteString(w, p.Account+" "+p.KeyID)
})

func TestRequire_KeyWithScope_CallsHandler(t *testing.T) {
	a, log := newAuthenticator(t)
	response, body := serve(t, a.Require(scopes.FilesRead, principal), request("reader"))
	if response.StatusCode != http.StatusOK || body != "acct_1 key_reader" {
		t.Errorf("got %d %q, want 200 %q", response.StatusCode, body, "acct_1 key_reader")
	}
	if response.Header.Get("WWW-Authenticate") != "" || log.Len() > 0 {
		t.Errorf("headers %v, log %q; want neither", response.Header, log)
	}
}

func TestRequire_OtherScope_AnswersForbidden(t *testing.T) {
	a, _ := newAuthenticator(t)
	for scope := range scopes.Specified().All() {
		want := http.StatusForbidden
		if scope == scopes.FilesRead {
			want = http.StatusOK
		}
		response, _ := serve(t, a.Require(scope, principal), request("reader"))
		if response.StatusCode != want {
			t.Errorf("%v: %d, want %d", scope, response.StatusCode, want)
		}
	}
}

func TestHandler_AnyLiveKey_CallsHandler(t *testing.T) {
	a, _ := newAuthenticator(t)
	for token, want := range map[string]auth.Principal{"reader": reader, "writer": writer} {
		_, body := serve(t, a.Handler(principal), request(token))
		if want := want.Account + " " + want.KeyID; body != want {
			t.Errorf("%s: got %q, want %q", token, body, want)
		}
	}
}

func TestRequire_MissingScope_NamesItInResponse(t *testing.T) {
	a, _ := newAuthenticator(t)
	response, body := serve(t, a.Require(scopes.SecretsWrite, unreachable(t)), request("reader"))
	const want = `{"error":{"code":"FORBIDDEN","message":"This requires an API key with the scope secrets:write.","requiredScopes":["secrets:write"]}}`
	if response.StatusCode != http.StatusForbidden || body != want {
		t.Errorf("got %d %s, want 403 %s", response.StatusCode, body, want)
	}
	const challenge = `ApiKey realm="storageapi", error="insufficient_scope", scope="secrets:write"`
	if got := response.Header.Values("WWW-Authenticate"); len(got) != 1 || got[0] != challenge {
		t.Errorf("WWW-Authenticate = %q, want %q", got, challenge)
	}
}

// Every kind of invalid request must get a byte-identical response.
func TestRequire_MissingOrInvalidKey_AnswersIdentically(t *testing.T) {
	const want = `{"error":{"code":"UNAUTHORIZED","message":"The Api-Key header is missing, or the key in it is invalid or expired."}}`
	tests := map[string]*http.Request{
		"missing":          request(),
		"unknown":          request("nobody"),
		"wrong case":       request("READER"),
		"twice the same":   request("reader", "reader"),
		"good, then bad":   request("reader", "nobody"),
		"bad, then good":   request("nobody", "reader"),
		"good, then empty": request("reader", ""),
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer reader", "Authorization ": "ApiKey reader", "X-Api-Key": "reader", "Apikey": "reader",
		"Api_key": "reader", "Cookie": "Api-Key=reader", "Proxy-Authorization": "reader", "api-key": "reader",
	} {
		r := request()
		r.Header[name] = []string{value} // not canonicalized: only net/http does that
		tests["only in "+name] = r
	}
	for _, query := range []string{"api-key=reader", "Api-Key=reader", "api_key=reader", "apiKey=reader", "key=reader"} {
		r := request()
		r.URL.RawQuery = query
		tests["only in query "+query] = r
	}
	form := httptest.NewRequest(http.MethodPost, "/v2/environments", strings.NewReader("Api-Key=reader"))
	form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	tests["only in a form"] = form
	trailer := request()
	trailer.Trailer = http.Header{"Api-Key": {"reader"}}
	tests["only in a trailer"] = trailer

	a, log := newAuthenticator(t)
	for name, r := range tests {
		t.Run(name, func(t *testing.T) {
			for _, handler := range []http.Handler{a.Require(scopes.FilesRead, unreachable(t)), a.Handler(unreachable(t))} {
				response, body := serve(t, handler, r)
				wantHeader := http.Header{
					"Content-Type":           {"application/json; charset=utf-8"},
					"X-Content-Type-Options": {"nosniff"},
					"Www-Authenticate":       {`ApiKey realm="storageapi"`},
				}
				if response.StatusCode != http.StatusUnauthorized || body != want {
					t.Errorf("got %d %s, want 401 %s", response.StatusCode, body, want)
				}
				if diff := cmp.Diff(wantHeader, response.Header); diff != "" {
					t.Errorf("headers (-want +got):\n%s", diff)
				}
			}
		})
	}
	if log.Len() > 0 {
		t.Errorf("client errors were logged: %s", log)
	}
}

func TestRequire_VerifierFails_LogsErrorAndHidesIt(t *testing.T) {
	a, log := newAuthenticator(t)
	response, body := serve(t, a.Require(scopes.FilesRead, unreachable(t)), request("broken"))
	const want = `{"error":{"code":"INTERNAL_ERROR","message":"Something went wrong on our side. Try again later."}}`
	if response.StatusCode != http.StatusInternalServerError || body != want {
		t.Errorf("got %d %s, want 500 %s", response.StatusCode, body, want)
	}
	if got := log.String(); !strings.Contains(got, errBroken.Error()) || strings.Contains(got, "broken") {
		t.Errorf("log = %q, want the error without the token", got)
	}
}

func TestRequire_ClientDisconnected_LogsNothing(t *testing.T) {
	a, log := newAuthenticator(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	response, _ := serve(t, a.Handler(unreachable(t)), request("broken").WithContext(ctx))
	if response.StatusCode != http.StatusInternalServerError || log.Len() > 0 {
		t.Errorf("status = %d, log = %q; want 500 and no log", response.StatusCode, log)
	}
}

func TestAuthenticate(t *testing.T) {
	a, _ := newAuthenticator(t)
	if p, err := a.Authenticate(request("reader")); err != nil || p != reader {
		t.Errorf("Authenticate = %v, %v, want %v", p, err, reader)
	}
	for _, r := range []*http.Request{request(), request("nobody"), request("reader", "reader")} {
		if p, err := a.Authenticate(r); !errors.Is(err, auth.ErrUnauthorized) || p != (auth.Principal{}) {
			t.Errorf("%v: Authenticate = %v, %v, want ErrUnauthorized", r.Header, p, err)
		}
	}
	if _, err := a.Authenticate(request("broken")); !errors.Is(err, errBroken) || errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("failing verifier: err = %v", err)
	}
}

// The verifier must receive the value unchanged. Over HTTP, the header's name may have any case.
func TestHandler_OverHTTP_AcceptsHeaderInAnyCase(t *testing.T) {
	a, _ := newAuthenticator(t)
	server := httptest.NewServer(a.Handler(principal))
	t.Cleanup(server.Close)
	for name, want := range map[string]int{"api-key": 200, "API-KEY": 200, "aPi-KeY": 200, "apikey": 401} {
		r, err := http.NewRequest(http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header[name] = []string{"writer"}
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", name, response.StatusCode, want)
		}
	}
}

func TestRequireAndHandler_InvalidArguments_Panic(t *testing.T) {
	a, _ := newAuthenticator(t)
	mustPanic(t, "Require with the zero Scope", func() { a.Require("", principal) })
	mustPanic(t, "Require with an undeclared scope", func() { a.Require("teams:read", principal) })
	mustPanic(t, "Require with a nil handler", func() { a.Require(scopes.FilesRead, nil) })
	mustPanic(t, "Handler with a nil handler", func() { a.Handler(nil) })
}

func TestNew_InvalidArguments_ReturnsError(t *testing.T) {
	if _, err := auth.New(nil, auth.Config{}); err == nil {
		t.Error("New accepts a nil Verifier")
	}
	for field, limits := range map[string][]auth.RateLimit{
		"RateLimit.PerSecond": {{PerSecond: -1}, {PerSecond: math.NaN(), Burst: 1}, {PerSecond: math.Inf(1)}, {Burst: 1}},
		"RateLimit.Burst":     {{PerSecond: 1, Burst: -1}, {PerSecond: 1, Burst: 365*24*3600 + 1}, {PerSecond: 1e9, Burst: math.MaxInt32 + 1}, {PerSecond: 1e-9}},
	} {
		for _, limit := range limits {
			if _, err := auth.New(allKeys, auth.Config{RateLimit: limit}); err == nil || !strings.Contains(err.Error(), field+" must") {
				t.Errorf("%+v: err = %v, want an error that names %s", limit, err, field)
			}
		}
	}
	for _, limit := range []auth.RateLimit{{}, {PerSecond: 0.1}, {PerSecond: 1e18}, {PerSecond: 1, Burst: 365 * 24 * 3600}} {
		if _, err := auth.New(allKeys, auth.Config{RateLimit: limit}); err != nil {
			t.Errorf("New with %+v: %v", limit, err)
		}
	}
}

func TestPrincipalFrom(t *testing.T) {
	if p, ok := auth.PrincipalFrom(t.Context()); ok || p != (auth.Principal{}) {
		t.Errorf("outside a guarded handler: %v, %v", p, ok)
	}
	ctx := auth.WithPrincipal(auth.WithPrincipal(t.Context(), reader), writer)
	if p, ok := auth.PrincipalFrom(ctx); !ok || p != writer {
		t.Errorf("PrincipalFrom = %v, %v, want %v", p, ok, writer)
	}
}
