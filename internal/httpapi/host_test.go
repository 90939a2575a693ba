package httpapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/scopes"
)

const (
	keysPath     = "/v2/api-keys"
	webhooksPath = "/v2/notifications/webhooks"
	someULID     = "01JZ5T3K9QWERTYASDFGHZXCVB" // belongs to no object
	alice        = "acct_alice"
	bob          = "acct_bob"
)

// A host serves the API over real HTTP.
type host struct {
	testing.TB
	api *storageapi.Handler
	url string
}

// newAPI returns a Handler. It uses a new file unless config names a file or a store.
func newAPI(t testing.TB, config storageapi.Config) *storageapi.Handler {
	t.Helper()
	if config.Store == nil && config.Path == "" {
		config.Path = filepath.Join(t.TempDir(), "storage.db")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	api, err := storageapi.NewHandler(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := api.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return api
}

// serve returns a host that serves the API directly, without a router.
func serve(t testing.TB, config storageapi.Config) *host {
	t.Helper()
	api := newAPI(t, config)
	return mount(t, api, api)
}

// mount returns a host whose HTTP server serves root.
func mount(t testing.TB, api *storageapi.Handler, root http.Handler) *host {
	t.Helper()
	server := httptest.NewServer(root)
	t.Cleanup(server.Close)
	return &host{t, api, server.URL}
}

// key creates, in Go, a key that never expires.
func (h *host) key(account string, members ...scopes.Scope) (id, token string) {
	return h.expiringKey(account, time.Time{}, members...)
}

func (h *host) expiringKey(account string, expiresAt time.Time, members ...scopes.Scope) (id, token string) {
	h.Helper()
	key, secret, err := h.api.Keys.Create(h.Context(), account, apikeys.CreateParams{
		Name: "a key", Scopes: scopes.Of(members...), ExpiresAt: expiresAt,
	})
	if err != nil {
		h.Fatal(err)
	}
	return key.ID, secret.Reveal()
}

// admin creates a key that has all scopes and never expires, and returns its token.
func (h *host) admin(account string) string {
	h.Helper()
	_, token := h.key(account, allScopes()...)
	return token
}

func allScopes() []scopes.Scope {
	var list []scopes.Scope
	for s := range scopes.Specified().All() {
		list = append(list, s)
	}
	return list
}

// A reply is a response, including its body.
type reply struct {
	testing.TB
	status int
	header http.Header
	body   string
}

// do sends a request. It sends a body as JSON.
func (h *host) do(method, path, token, body string, changes ...func(*http.Request)) reply {
	h.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(h.Context(), method, h.url+path, reader)
	if err != nil {
		h.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Api-Key", token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, change := range changes {
		change(r)
	}
	response, err := http.DefaultTransport.RoundTrip(r) // RoundTrip does not follow redirects
	if err != nil {
		h.Fatal(err)
	}
	return read(h, method, response)
}

// raw sends the given lines, joined by CRLF, on a separate connection.
func (h *host) raw(lines ...string) reply {
	h.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		h.Fatal(err)
	}
	defer connection.Close()
	if _, err := io.WriteString(connection, strings.Join(lines, "\r\n")); err != nil {
		h.Fatal(err)
	}
	method, _, _ := strings.Cut(lines[0], " ")
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: method})
	if err != nil {
		h.Fatal(err)
	}
	return read(h, method, response)
}

// read reads a response and checks the rules that all responses must follow.
func read(t testing.TB, method string, response *http.Response) reply {
	t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	response.Header.Del("Date")
	text, ended := strings.CutSuffix(string(body), "\n")
	got := reply{t, response.StatusCode, response.Header, text}
	if got.status == http.StatusNoContent || method == http.MethodHead {
		if len(body) > 0 {
			t.Errorf("%d to %s with a body: %s", got.status, method, body)
		}
		return got
	}
	if r := response.Request; r != nil && r.URL != nil && got.status == http.StatusOK && strings.HasSuffix(r.URL.Path, "/body") {
		return got // the body of an event, unchanged
	}
	if !ended || strings.HasSuffix(text, "\n") {
		t.Errorf("%d does not end with one newline: %q", got.status, body)
	}
	if contentType := got.header.Get("Content-Type"); contentType != "application/json; charset=utf-8" {
		t.Errorf("%d with Content-Type %q: %s", got.status, contentType, body)
	}
	if got.status >= 400 {
		checkErrorShape(t, body)
	}
	return got
}

// An errorBody is the body of an error response.
type errorBody struct {
	Error struct {
		Code    string  `json:"code"`
		Message string  `json:"message"`
		Field   *string `json:"field"`
		Errors  []struct {
			Field   string `json:"field"`
			Message string `json:"message"`
		} `json:"errors"`
		RequiredScopes    []string `json:"requiredScopes"`
		RequiredResources []string `json:"requiredResources"`
	} `json:"error"`
}

// checkErrorShape checks that the body is an errorBody without other fields. It must have "field"
// if and only if the request is invalid, and "requiredScopes" and "requiredResources" only if the
// request is forbidden.
func checkErrorShape(t testing.TB, body []byte) {
	t.Helper()
	var whole errorBody
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&whole)
	failure := whole.Error
	if err != nil || decoder.More() || failure.Code == "" || failure.Message == "" ||
		(failure.RequiredScopes != nil || failure.RequiredResources != nil) && failure.Code != "FORBIDDEN" || (failure.Field != nil) != (failure.Code == "VALIDATION_ERROR") ||
		failure.Errors != nil && (failure.Code != "VALIDATION_ERROR" || len(failure.Errors) < 2 || failure.Errors[0].Field != *failure.Field) {
		t.Errorf("not the shape of an error: %s", body)
	}
}

// want checks the status and, for an error response, the code. It returns the reply.
func (r reply) want(status int, code string) reply {
	r.Helper()
	if r.status != status || r.status >= 400 && r.code() != code {
		r.Fatalf("got %d %s, want %d %s", r.status, r.body, status, code)
	}
	return r
}

func (r reply) code() string { return r.failure().Error.Code }

func (r reply) message() string { return r.failure().Error.Message }

func (r reply) field() string {
	field := r.failure().Error.Field
	if field == nil {
		return ""
	}
	return *field
}

func (r reply) failure() (body errorBody) {
	_ = json.Unmarshal([]byte(r.body), &body)
	return body
}

// object decodes the body as a JSON object.
func (r reply) object() map[string]any {
	r.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(r.body), &object); err != nil {
		r.Fatalf("%v: %s", err, r.body)
	}
	return object
}

// text returns a string field of the body.
func (r reply) text(field string) string {
	r.Helper()
	text, ok := r.object()[field].(string)
	if !ok {
		r.Fatalf("no string %q in %s", field, r.body)
	}
	return text
}

// A clock is the clock of a key service.
type clock struct{ *testclock.Clock }

func newClock() clock {
	return clock{testclock.At(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))}
}

// config makes the key service use the clock.
func (c clock) config() storageapi.Config {
	return storageapi.Config{Keys: apikeys.Config{Now: c.Now}}
}
