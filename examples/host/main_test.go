package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestHost uses the host like its users, ends it during a request, and restarts it.
func TestHost(t *testing.T) {
	path, base, metrics := filepath.Join(t.TempDir(), "host.db"), address(t), address(t)
	stop, key := start(t, path, base, metrics)

	call := func(method, path, key, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Api-Key", key)
		r.Header.Set("Content-Type", "application/json")
		return read(t)(http.DefaultClient.Do(r))
	}
	want := func(status int, says string) func(int, string) {
		return func(got int, body string) {
			t.Helper()
			if got != status || !strings.Contains(body, says) {
				t.Errorf("%d %s, want %d %s", got, body, status, says)
			}
		}
	}
	want(201, `"name":"Research"`)(call("POST", "/v2/teams", key, `{"name":"Research"}`))
	want(200, `"name":"Research"`)(call("GET", "/v2/teams", key, ""))
	want(401, "UNAUTHORIZED")(call("GET", "/v2/teams", "", ""))
	status, made := call("POST", "/v2/api-keys", key, `{"name":"reader","scopes":["teams:read"]}`)
	want(201, `"scopes":["teams:read"]`)(status, made)
	_, reader, _ := strings.Cut(made, `"key":"`)
	reader, _, _ = strings.Cut(reader, `"`)
	want(200, "Research")(call("GET", "/v2/teams", reader, ""))
	want(403, "teams:write")(call("POST", "/v2/teams", reader, `{"name":"x"}`))
	want(201, "teams.created")(call("POST", "/v2/notifications/webhooks", reader, `{"url":"https://example.com/","events":["teams.created"]}`))
	want(200, "webhook_deliveries_pending 0\n")(read(t)(http.Get("http://" + metrics + "/metrics")))
	want(200, "\nstore_halted 0\n")(read(t)(http.Get("http://" + metrics + "/metrics")))
	want(200, `{"ready":true,"live":true,"problems":[],"run":"running"`)(read(t)(http.Get("http://" + metrics + "/ready")))
	want(200, `"ready":true`)(read(t)(http.Get("http://" + metrics + "/live")))
	want(200, `"account":"acct_1"`)(read(t)(http.Get("http://" + metrics + "/accounts")))
	want(404, "")(call("GET", "/metrics", "", ""))

	// The settings pages are behind the login.
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	asked := "http://" + base + "/settings/webhooks"
	want(200, "<title>Sign in</title>")(read(t)(browser.Get(asked)))
	signIn := "http://" + base + "/sign-in?next=" + url.QueryEscape("/settings/webhooks")
	want(403, "Wrong password.")(read(t)(browser.PostForm(signIn, url.Values{"password": {"guess"}})))
	want(200, "Team created")(read(t)(browser.PostForm(signIn, url.Values{"password": {"secret"}})))
	want(200, "API keys")(read(t)(browser.PostForm("http://"+base+"/sign-in?next=//evil.example/", url.Values{"password": {"secret"}})))
	want(200, "<title>Sign in</title>")(read(t)(browser.PostForm("http://"+base+"/sign-out", nil)))
	want(200, "<title>Sign in</title>")(read(t)(browser.Get(asked)))
	stop()

	// The next start must print no key, and existing keys must work.
	stop, again := start(t, path, base, metrics)
	if again != "" {
		t.Error("the second start made another key")
	}
	want(200, `"data":[]`)(call("GET", "/v2/teams", reader, ""))
	stop()

	// If the address is in use, the host must exit and close its file.
	taken, err := net.Listen("tcp", metrics)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), io.Discard, path, base, metrics, "secret"); err == nil || !strings.Contains(err.Error(), metrics) {
		t.Errorf("where an address is taken: %v", err)
	}
	_ = taken.Close()
	stop, _ = start(t, path, base, metrics)
	stop()
	if err := run(t.Context(), io.Discard, path, base, metrics, ""); err == nil {
		t.Error("it runs without a password")
	}
}

// start runs the host until stop is called, and returns the key that it printed, if any.
func start(t *testing.T, path, base, metrics string) (stop func(), key string) {
	t.Helper()
	printed := make(lines, 1)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, printed, path, base, metrics, "secret") }()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if connection, err := net.Dial("tcp", base); err == nil {
			_ = connection.Close()
			if connection, err = net.Dial("tcp", metrics); err == nil {
				_ = connection.Close()
				break
			}
		}
		select {
		case err := <-ended:
			t.Fatal("ended: ", err)
		default:
		}
		if time.Now().After(end) {
			t.Fatal("it does not listen")
		}
	}
	select {
	case key = <-printed: // printed before the host listens
	default:
	}
	return func() {
		t.Helper()
		cancel()
		http.DefaultClient.CloseIdleConnections()
		if err := <-ended; err != nil {
			t.Error("ended: ", err)
		}
	}, strings.TrimPrefix(strings.TrimSpace(key), "export KEY=")
}

// lines collects the output by line.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// address returns a free address.
func address(t *testing.T) string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = free.Close() }()
	return free.Addr().String()
}

func read(t *testing.T) func(*http.Response, error) (int, string) {
	return func(response *http.Response, err error) (int, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
}
