package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/client"
)

// A script answers the requests of a client; each step answers one request.
type script struct {
	steps    []func(*http.Request) (*http.Response, error)
	requests []*http.Request
	bodies   []string
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	body, _ := io.ReadAll(r.Body)
	s.requests, s.bodies = append(s.requests, r), append(s.bodies, string(body))
	if len(s.requests) > len(s.steps) {
		return nil, errors.New("the script has ended")
	}
	return s.steps[len(s.requests)-1](r)
}

// client returns a client with the key "sak_secret" whose requests the script answers.
func (s *script) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New("https://api.example/v2", "sak_secret", client.Options{HTTP: &http.Client{Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func play(steps ...func(*http.Request) (*http.Response, error)) *script { return &script{steps: steps} }

// answer is a step that answers with a status, a body, and headers in pairs.
func answer(status int, body string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		h := make(http.Header)
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
}

// broken is a step that fails after the request was sent.
func broken(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

func unavailable(retryAfter string) func(*http.Request) (*http.Response, error) {
	return answer(503, `{"error":{"code":"SERVICE_UNAVAILABLE","message":"m"}}`, "Retry-After", retryAfter)
}

func TestClient_Failures_AreRetriedIfHarmless(t *testing.T) {
	read := func(ctx context.Context, c *client.Client) error { _, err := c.Key(ctx, "key_1"); return err }
	rotate := func(ctx context.Context, c *client.Client) error {
		_, err := c.RotateKey(ctx, "key_1", client.Rotation{})
		return err
	}
	update := func(ctx context.Context, c *client.Client) error {
		_, err := c.UpdateKey(ctx, "key_1", client.UpdateKey{Name: client.Some("a")}, client.IfMatch(`"1"`))
		return err
	}
	remove := func(ctx context.Context, c *client.Client) error { return c.DeleteKey(ctx, "key_1") }
	refused := func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	const notFound = `{"error":{"code":"NOT_FOUND","message":"No such key."}}`
	ok, limited := answer(200, `{"id":"key_1"}`), answer(429, "", "Retry-After", "2")
	for name, test := range map[string]struct {
		call     func(context.Context, *client.Client) error
		script   *script
		attempts int
		atLeast  time.Duration
		err      string
	}{
		"waits as told":               {read, play(unavailable("7"), ok), 2, 7 * time.Second, ""},
		"proxy":                       {read, play(answer(502, "<html>"), answer(504, ""), ok), 3, 0, ""},
		"connection breaks":           {read, play(broken, broken, broken, ok), 4, 800 * time.Millisecond, ""},
		"gives up":                    {read, play(broken, broken, broken, broken), 4, 0, "GET /api-keys/key_1: Get \"https://api.example/v2/api-keys/key_1\": unexpected EOF"},
		"told to wait for a day":      {read, play(unavailable("86400")), 1, 0, "GET /api-keys/key_1: 503 SERVICE_UNAVAILABLE: m"},
		"500":                         {read, play(answer(500, "")), 1, 0, "GET /api-keys/key_1: 500 Internal Server Error"},
		"rotation, connection breaks": {rotate, play(broken), 1, 0, "unexpected EOF"},
		"rotation, unavailable":       {rotate, play(unavailable("1")), 1, 0, "503 SERVICE_UNAVAILABLE: m"},
		"rotation, limited":           {rotate, play(limited, ok), 2, 2 * time.Second, ""},
		"rotation, nothing was sent":  {rotate, play(refused, ok), 2, 0, ""},
		"If-Match, connection breaks": {update, play(broken), 1, 0, "unexpected EOF"},
		"deleted before":              {remove, play(broken, answer(404, notFound)), 2, 0, ""},
		"not found by a proxy":        {remove, play(answer(502, ""), answer(404, "")), 2, 0, "404 Not Found"},
		"unknown, after a limit":      {remove, play(answer(429, "", "Retry-After", "0"), answer(404, notFound)), 2, 0, "NOT_FOUND"},
		"a page instead of a result":  {remove, play(answer(200, "<html>")), 1, 0, "is not the API's"},
		"nothing to delete":           {remove, play(answer(404, "")), 1, 0, "404 Not Found"},
		"HTML with 200":               {read, play(answer(200, "<html>", "Content-Type", "text/html")), 1, 0, `the response (200, "text/html") is not the API's JSON`},
		"redirect":                    {read, play(answer(302, "", "Location", "https://evil.example/")), 1, 0, "302 Found"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				err := test.call(t.Context(), test.script.client(t))
				if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
					t.Errorf("got error %v, want %q", err, test.err)
				}
				if took := time.Since(begun); len(test.script.requests) != test.attempts || took < test.atLeast {
					t.Errorf("%d attempts in %v, want %d in at least %v", len(test.script.requests), took, test.attempts, test.atLeast)
				}
			})
		})
	}
}

func TestClient_CreationRepeated_KeepsItsIdempotencyKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := play(broken, answer(200, `{"id":"key_1"}`))
		key, err := s.client(t).CreateKey(t.Context(), client.CreateKey{Name: "a"})
		if !errors.Is(err, client.ErrCreatedBefore) || key.ID != "key_1" {
			t.Errorf("got %v, %v: want the key and ErrCreatedBefore", key.ID, err)
		}
		first, second := s.requests[0].Header.Get("Idempotency-Key"), s.requests[1].Header.Get("Idempotency-Key")
		if first == "" || first != second || s.bodies[0] != s.bodies[1] || s.bodies[1] == "" {
			t.Errorf("idempotency keys %q, %q; bodies %q", first, second, s.bodies)
		}
		s.steps = append(s.steps, answer(201, `{"id":"key_2"}`), answer(201, `{"id":"key_3"}`))
		for range 2 {
			if _, err := s.client(t).CreateKey(t.Context(), client.CreateKey{Name: "a"}); err != nil {
				t.Error(err)
			}
		}
		if third, fourth := s.requests[2].Header.Get("Idempotency-Key"), s.requests[3].Header.Get("Idempotency-Key"); third == fourth || third == first {
			t.Error("two creations share an idempotency key")
		}
	})
}

func TestClient_ContextEnds_DoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := play(unavailable("5"), broken).client(t).Key(ctx, "key_1")
		if refusal, ok := errors.AsType[*client.Error](err); !ok || refusal.RetryAfter != 5*time.Second || time.Since(begun) > 0 {
			t.Errorf("the wait would outlast the context: got %v after %v", err, time.Since(begun))
		}
		ended, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(errStopped) })
		_, err = play(unavailable("5"), broken).client(t).Key(ended, "key_1")
		if !errors.Is(err, errStopped) || time.Since(begun) > time.Second {
			t.Errorf("canceled while it waits: got %v after %v", err, time.Since(begun))
		}
		if _, err := play(broken).client(t).Key(ended, "key_1"); !errors.Is(err, errStopped) {
			t.Errorf("canceled before: got %v", err)
		}
	})
}

var errStopped = errors.New("stopped")

func TestClient_ErrorResponses_AreDecoded(t *testing.T) {
	for _, test := range []struct {
		status int
		body   string
		header []string
		want   client.Error
		text   string
	}{
		{404, `{"error":{"code":"NOT_FOUND","message":"m","more":1},"more":2}`, nil, client.Error{Status: 404, Code: "NOT_FOUND", Message: "m"}, "404 NOT_FOUND: m"},
		{400, `{"error":{"code":"VALIDATION_ERROR","message":"m","field":"name"}}`, []string{"X-Request-Id", "r1"},
			client.Error{Status: 400, Code: "VALIDATION_ERROR", Message: "m", Field: "name", RequestID: "r1"}, "400 VALIDATION_ERROR: m (request r1)"},
		{403, `{"error":{"code":"FORBIDDEN","message":"m","requiredScopes":["files:read"]}}`, nil,
			client.Error{Status: 403, Code: "FORBIDDEN", Message: "m", RequiredScopes: []string{"files:read"}}, "403 FORBIDDEN: m"},
		{403, `{"error":{"code":"FORBIDDEN","message":"m","requiredResources":["env-1"]}}`, nil,
			client.Error{Status: 403, Code: "FORBIDDEN", Message: "m", RequiredResources: []string{"env-1"}}, "403 FORBIDDEN: m"},
		{400, `{"error":{"code":"VALIDATION_ERROR","message":"m","field":"a","errors":[{"field":"a","message":"b"},{"field":"c","message":"d"}]}}`, nil,
			client.Error{Status: 400, Code: "VALIDATION_ERROR", Message: "m", Field: "a", Errors: []client.FieldError{{Field: "a", Message: "b"}, {Field: "c", Message: "d"}}}, "400 VALIDATION_ERROR: m"},
		{409, "<html>a proxy</html>", nil, client.Error{Status: 409, Message: "Conflict"}, "409 Conflict"},
		{409, `{"error":"text"}`, nil, client.Error{Status: 409, Message: "Conflict"}, "409 Conflict"},
		{409, `{"error":{"message":"no code"}}`, nil, client.Error{Status: 409, Message: "Conflict"}, "409 Conflict"},
		{599, "", []string{"Retry-After", "nonsense"}, client.Error{Status: 599, Message: "Unknown Status"}, "599 Unknown Status"},
		{500, `{"error":{"code":"A","message":"` + strings.Repeat("x", 64<<10) + `"}}`, nil, client.Error{Status: 500, Message: "Internal Server Error"}, "500 Internal Server Error"},
	} {
		_, err := play(answer(test.status, test.body, test.header...)).client(t).Key(t.Context(), "key_1")
		got, ok := errors.AsType[*client.Error](err)
		if !ok {
			t.Fatalf("%d %.60s: got %v", test.status, test.body, err)
		}
		if diff := gocmp.Diff(test.want, *got); diff != "" {
			t.Errorf("%d %.60s (-want +got):\n%s", test.status, test.body, diff)
		}
		if got.Error() != test.text {
			t.Errorf("got text %q, want %q", got, test.text)
		}
	}
}

// A redirect must not carry the key to another host.
func TestClient_Redirect_IsNotFollowed(t *testing.T) {
	evil := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the other host got the header %v", r.Header)
	}))
	defer evil.Close()
	for _, status := range []int{301, 302, 307, 308} {
		server := httptest.NewServer(http.RedirectHandler(evil.URL, status))
		c, err := client.New(server.URL, "sak_secret", client.Options{HTTP: server.Client()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.OwnKey(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) {
			t.Errorf("got %v, want an error with %d", err, status)
		}
		server.Close()
	}
}

func TestClient_Printed_HasNoSecret(t *testing.T) {
	s := play(answer(201, `{"id":"key_1","key":"sak_created"}`), answer(201, `{"id":"wh_1","secret":"whsec_created"}`), broken)
	c := s.client(t)
	key, err := c.CreateKey(t.Context(), client.CreateKey{Name: "a"})
	if err != nil || key.Value.Reveal() != "sak_created" {
		t.Fatalf("got %v, %v", key.Value.Reveal(), err)
	}
	hook, err := c.CreateWebhook(t.Context(), client.CreateWebhook{})
	if err != nil || hook.Secret.Reveal() != "whsec_created" {
		t.Fatalf("got %v, %v", hook.Secret.Reveal(), err)
	}
	_, failed := c.RotateKey(t.Context(), "key_1", client.Rotation{})
	_, malformed := client.New("https://me:sak_secret@api.example/v2", "", client.Options{})
	_, unparsable := client.New("https://me:sak_secret@api.example:x/v2", "", client.Options{})
	_, invalid := client.New("https://api.example/v2", "sak_secret\n", client.Options{})

	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	for _, value := range []any{c, *c, key, &key, hook, &hook, failed, malformed, unparsable, invalid} {
		fmt.Fprintf(&out, "%v %+v %#v %s\n", value, value, value, value)
		log.Info("x", "value", value)
		_ = json.NewEncoder(&out).Encode(value)
	}
	for _, secret := range []string{"sak_secret", "sak_created", "whsec_created"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%s is printed:\n%s", secret, &out)
		}
	}
}

func TestClient_Lists_ReadAllPages(t *testing.T) {
	s := play(
		answer(200, `{"data":[{"id":"key_3"}],"nextCursor":"a","hasMore":true}`), answer(200, `{"data":[],"nextCursor":"b","hasMore":true}`),
		answer(200, `{"data":[{"id":"key_1"}],"nextCursor":null,"hasMore":false}`),
		answer(200, `{"data":[{"id":"key_3"}],"nextCursor":"a","hasMore":true}`), answer(200, `{"data":[{"id":"key_2"}],"nextCursor":"a","hasMore":true}`),
	)
	keys := s.client(t).Keys(t.Context(), client.KeyQuery{Name: "a b", Scopes: []string{"x:read", "y:read"}, Labels: []string{"team=data"}, UnusedSince: time.Unix(0, 0).UTC()})
	list := func() (ids []string, err error) {
		for key, err := range keys {
			if err != nil {
				return ids, err
			}
			ids = append(ids, key.ID)
		}
		return ids, nil
	}
	ids, err := list()
	if diff := gocmp.Diff([]string{"key_3", "key_1"}, ids); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	const query = "label=team%3Ddata&limit=100&name=a+b&scope=x%3Aread&scope=y%3Aread&unusedSince=1970-01-01T00%3A00%3A00Z"
	if first, third := s.requests[0].URL.RawQuery, s.requests[2].URL.RawQuery; first != query || third != "cursor=b&"+query {
		t.Errorf("queries %q, %q", first, third)
	}
	if ids, err := list(); err == nil || len(ids) != 2 {
		t.Errorf("a cursor that does not move: got %q, %v", ids, err)
	}
}
