package httpapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// anyWebhook has a receiver that does not exist.
var anyWebhook = webhooks.CreateParams{URL: "https://receiver.invalid", Events: alerts.EventTypes()}

// A held is a request whose header and first body byte have been sent; the rest of the body follows
// later.
type held struct {
	*host
	method string
	rest   *io.PipeWriter
	body   string
	answer chan *http.Response
}

// hold sends the start of a request, without the rest of its body. It returns once the API has read
// the key from the store.
func (h *host) hold(client *http.Client, faults *faulty, method, path, token, body string) *held {
	h.Helper()
	reader, writer := io.Pipe()
	r, err := http.NewRequestWithContext(h.Context(), method, h.url+path, reader)
	if err != nil {
		h.Fatal(err)
	}
	r.Header.Set("Api-Key", token)
	r.Header.Set("Content-Type", "application/json")
	verified := faults.next("KeyByHash")
	got := &held{h, method, writer, body[1:], make(chan *http.Response, 1)}
	go func() {
		response, err := client.Do(r)
		if err != nil {
			h.Error(err)
		}
		got.answer <- response
	}()
	if _, err := io.WriteString(writer, body[:1]); err != nil {
		h.Fatal(err)
	}
	<-verified
	return got
}

// finish sends the rest of the body.
func (r *held) finish() reply {
	r.Helper()
	_, _ = io.WriteString(r.rest, r.body)
	_ = r.rest.Close()
	response := <-r.answer
	if response == nil {
		r.FailNow()
	}
	return read(r, r.method, response)
}

// next returns a channel that is closed when the method is called next.
func (f *faulty) next(method string) <-chan struct{} {
	called := make(chan struct{})
	var once sync.Once
	f.before = func(m string) error {
		if m == method {
			once.Do(func() { close(called) })
		}
		return nil
	}
	return called
}

// protocols runs a test once with HTTP/1.1 and once with HTTP/2.
func protocols(t *testing.T, test func(t *testing.T, h *host, client *http.Client, faults *faulty)) {
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(version, func(t *testing.T) {
			faults := newFaulty()
			api := newAPI(t, storageapi.Config{Store: faults})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Proto != version && r.TLS != nil {
					t.Errorf("over %s", r.Proto)
				}
				api.ServeHTTP(w, r)
			}))
			if version == "HTTP/2.0" {
				server.EnableHTTP2 = true
				server.StartTLS()
			} else {
				server.Start()
			}
			t.Cleanup(server.Close)
			test(t, &host{t, api, server.URL}, server.Client(), faults)
		})
	}
}

// The request must also be refused if only the value that it carries becomes invalid.
func TestHeldRequest_KeyDeletedWhileBodyArrives_IsRefused(t *testing.T) {
	protocols(t, func(t *testing.T, h *host, client *http.Client, faults *faulty) {
		unauthorized := httptest.NewRecorder()
		h.api.Auth.WriteUnauthorized(unauthorized)
		webhook, err := h.api.Webhooks.Create(t.Context(), alice, anyWebhook)
		if err != nil {
			t.Fatal(err)
		}
		h.publishSomeEvent()
		hook := webhooksPath + "/" + webhook.ID
		other, _ := h.key(alice, scopes.FilesRead)
		deaths := map[string]func(id string) error{
			"deleted": func(id string) error { return h.api.Keys.Delete(t.Context(), alice, id, apikeys.DeleteParams{}) },
			"replaced": func(id string) error {
				_, _, err := h.api.Keys.Rotate(t.Context(), alice, id, apikeys.RotateParams{})
				return err
			},
			"disabled": func(id string) error {
				_, err := h.api.Keys.Update(t.Context(), alice, id, apikeys.UpdateParams{Enabled: new(bool)})
				return err
			},
		}
		for name, die := range deaths {
			for _, request := range []struct{ method, path, body string }{
				{"POST", keysPath, newKey},
				{"PATCH", keysPath + "/" + other, `{"name":"b"}`},
				{"POST", keysPath + "/" + other + "/rotate", "{}"},
				{"POST", keysPath + "/self/rotate", "{}"},
				{"PATCH", keysPath + "/self", `{"name":"b"}`},
				{"PATCH", keysPath + "/self", `{"enabled":true}`},
				{"POST", webhooksPath, newWebhook},
				{"PATCH", hook, `{"url":"https://evil.example"}`},
				{"POST", hook + "/rotate-secret", "{}"},
				{"POST", hook + "/test", "{}"},
				{"POST", hook + "/recoveries", "{}"},
				{"POST", hook + "/deliveries/" + someEvent + "/redeliver", "{}"},
			} {
				id, token := h.key(alice, allScopes()...)
				r := h.hold(client, faults, request.method, strings.Replace(request.path, "self", id, 1), token, request.body)
				if err := die(id); err != nil {
					t.Fatal(err)
				}
				before := h.state(alice)
				got := r.finish()
				if got.status != 401 || got.body+"\n" != unauthorized.Body.String() || got.header.Get("WWW-Authenticate") == "" {
					t.Errorf("%s, %s %s: got %d %s", name, request.method, request.path, got.status, got.body)
				}
				if after := h.state(alice); after != before {
					t.Errorf("%s, %s %s: the account was\n%s\nand is\n%s", name, request.method, request.path, before, after)
				}
			}
		}
	})
}

// The test holds requests open while a rotation replaces their value, which stays valid for its
// grace period.
func TestHeldRequest_ValueReplaced_StaysValidForGracePeriod(t *testing.T) {
	protocols(t, func(t *testing.T, h *host, client *http.Client, faults *faulty) {
		for _, request := range []struct{ method, path, body string }{
			{"POST", keysPath + "/self/rotate", "{}"},
			{"PATCH", keysPath + "/self", `{"name":"b"}`},
			{"POST", keysPath, newKey},
			{"POST", webhooksPath, newWebhook},
		} {
			id, token := h.key(alice, allScopes()...)
			r := h.hold(client, faults, request.method, strings.Replace(request.path, "self", id, 1), token, request.body)
			if _, _, err := h.api.Keys.Rotate(t.Context(), alice, id, apikeys.RotateParams{Grace: time.Hour}); err != nil {
				t.Fatal(err)
			}
			before := h.state(alice)
			r.finish().want(403, "FORBIDDEN")
			if after := h.state(alice); after != before {
				t.Errorf("%s %s: the account was\n%s\nand is\n%s", request.method, request.path, before, after)
			}
		}
	})
}

// The caller's key changes between the recheck and the write.
func TestWrites_CallersKeyChangesAfterRecheck_AreRefused(t *testing.T) {
	faults := newFaulty()
	h := serve(t, storageapi.Config{Store: faults})
	remove := func(id string) error { return h.api.Keys.Delete(t.Context(), alice, id, apikeys.DeleteParams{}) }
	rotate := func(grace time.Duration) func(string) error {
		return func(id string) error {
			_, _, err := h.api.Keys.Rotate(t.Context(), alice, id, apikeys.RotateParams{Grace: grace})
			return err
		}
	}
	disable := func(id string) error {
		_, err := h.api.Keys.Update(t.Context(), alice, id, apikeys.UpdateParams{Enabled: new(bool)})
		return err
	}
	for _, test := range []struct {
		step, method, path, body string
		meanwhile                func(id string) error
		status                   int
		code                     string
	}{
		{"CreateKey", "POST", keysPath, newKey, remove, 401, "UNAUTHORIZED"},
		{"CreateKey", "POST", keysPath, newKey, rotate(0), 401, "UNAUTHORIZED"},
		{"CreateKey", "POST", keysPath, newKey, rotate(time.Hour), 403, "FORBIDDEN"},
		{"CreateWebhook", "POST", webhooksPath, newWebhook, remove, 401, "UNAUTHORIZED"},
		{"CreateWebhook", "POST", webhooksPath, newWebhook, rotate(time.Hour), 403, "FORBIDDEN"},
		{"UpdateKey", "POST", keysPath + "/self/rotate", "", rotate(0), 401, "UNAUTHORIZED"},
		{"UpdateKey", "POST", keysPath + "/self/rotate", "", rotate(time.Hour), 403, "FORBIDDEN"},
		{"UpdateKey", "PATCH", keysPath + "/self", `{"name":"b"}`, rotate(0), 401, "UNAUTHORIZED"},
		{"UpdateKey", "PATCH", keysPath + "/self", `{"name":"b"}`, rotate(time.Hour), 403, "FORBIDDEN"},
		{"UpdateKey", "PATCH", keysPath + "/self", `{"name":"b"}`, remove, 404, "NOT_FOUND"},
		{"CreateKey", "POST", keysPath, newKey, disable, 401, "UNAUTHORIZED"},
		{"CreateWebhook", "POST", webhooksPath, newWebhook, disable, 401, "UNAUTHORIZED"},
		{"UpdateKey", "PATCH", keysPath + "/self", `{"enabled":true}`, disable, 401, "UNAUTHORIZED"},
		{"UpdateKey", "POST", keysPath + "/self/rotate", "", disable, 401, "UNAUTHORIZED"},
		{"DeleteKey", "DELETE", keysPath + "/self", "", disable, 401, "UNAUTHORIZED"},
		{"DeleteKey", "DELETE", keysPath + "/self", "", rotate(0), 401, "UNAUTHORIZED"},
		{"DeleteKey", "DELETE", keysPath + "/self", "", rotate(time.Hour), 204, ""}, // any value of a key can delete the key
	} {
		id, token := h.key(alice, allScopes()...)
		var done bool
		var before string
		faults.before = func(method string) error {
			if method != test.step || done {
				return nil
			}
			done = true
			if err := test.meanwhile(id); err != nil {
				t.Error(err)
			}
			before = h.state(alice)
			return nil
		}
		h.do(test.method, strings.Replace(test.path, "self", id, 1), token, test.body).want(test.status, test.code)
		if after := h.state(alice); test.status >= 400 && after != before {
			t.Errorf("%s %s: the account was\n%s\nand is\n%s", test.method, test.path, before, after)
		}
	}
}

func TestRecheck_KeyDeletedDuringHostsUpload_IsRefused(t *testing.T) {
	faults := newFaulty()
	api := newAPI(t, storageapi.Config{Store: faults})
	mux := http.NewServeMux()
	mux.Handle("POST /v2/files", api.Auth.Require(scopes.FilesWrite, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		caller, err := auth.Recheck(auth.WithPrincipal(r.Context(), auth.Principal{Account: "of the host's"}))
		if err != nil {
			api.Auth.WriteUnauthorized(w)
			return
		}
		auth.WriteError(w, http.StatusTeapot, "STORED", caller.Account)
	})))
	h := mount(t, api, mux)
	for _, deleted := range []bool{false, true} {
		id, token := h.key(alice, scopes.FilesWrite)
		r := h.hold(http.DefaultClient, faults, "POST", "/v2/files", token, "some bytes")
		if deleted {
			if err := api.Keys.Delete(t.Context(), alice, id, apikeys.DeleteParams{}); err != nil {
				t.Fatal(err)
			}
			r.finish().want(401, "UNAUTHORIZED")
		} else if got := r.finish().want(418, "STORED"); got.message() != alice {
			t.Errorf("stored for %s", got.message())
		}
	}
}

// TestWriterWithoutDeadlines mounts the API behind middleware that hides the deadline methods of
// the server's ResponseWriter. The API must log this once, and it must still verify keys again.
func TestWriterWithoutDeadlines(t *testing.T) {
	faults := newFaulty()
	var log bytes.Buffer
	api := newAPI(t, storageapi.Config{Store: faults, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	h := mount(t, api, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	}))
	for range 2 {
		id, token := h.key(alice, allScopes()...)
		r := h.hold(http.DefaultClient, faults, "POST", keysPath, token, newKey)
		if err := api.Keys.Delete(t.Context(), alice, id, apikeys.DeleteParams{}); err != nil {
			t.Fatal(err)
		}
		r.finish().want(401, "UNAUTHORIZED")
	}
	if got := strings.Count(log.String(), "read deadline"); got != 1 {
		t.Errorf("told of %d times:\n%s", got, log.String())
	}
}

// state returns a text with everything in the account that requests can change.
func (h *host) state(account string) string {
	h.Helper()
	var all strings.Builder
	ctx := context.WithoutCancel(h.Context())
	keys, err := h.api.Keys.List(ctx, account, apikeys.KeyQuery{Limit: 1000})
	if err != nil {
		h.Error(err)
	}
	for _, key := range keys.Keys {
		fmt.Fprintf(&all, "%s %q %x\n", key.ID, key.Name, key.Hash.Sum[:4])
	}
	hooks, err := h.api.Webhooks.List(ctx, account, webhooks.WebhookQuery{Limit: 1000})
	if err != nil {
		h.Error(err)
	}
	for _, hook := range hooks.Webhooks {
		fmt.Fprintf(&all, "%s %s %s\n", hook.ID, hook.URL, hook.Secret.Reveal())
	}
	return all.String()
}
