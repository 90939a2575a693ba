package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/internal/testlog"
	"github.com/storageapi/storageapi/scopes"
)

// TestHalfClosedConnections sends requests from clients that close their half of the connection
// after the request. net/http then ends the request's context, but the clients must still get a
// response. The test covers the API, routes behind Require, and the dashboard. The context ends
// before any call to the store.
func TestHalfClosedConnections(t *testing.T) {
	faults, log := newFaulty(), new(testlog.Book)
	api := newAPI(t, storageapi.Config{Store: faults, Logger: log.Logger()})
	pages, err := dashboard.New(dashboard.Config{API: api, Account: func(r *http.Request) (string, error) { return alice, r.Context().Err() }})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	mux.Handle("/settings/", pages)
	mux.Handle("GET /v2/environments", api.Auth.Require(scopes.EnvironmentsRead, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "[]")
	})))
	// Each call to the store waits until the request's own context has ended.
	var ended atomic.Pointer[<-chan struct{}]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done := r.Context().Done()
		ended.Store(&done)
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	h := &host{t, api, server.URL}
	admin := h.admin(alice)
	key, _ := h.key(alice, scopes.FilesRead)
	webhook := h.do("POST", webhooksPath, admin, `{"url":"https://example.com","events":["balance.low"]}`).want(201, "").text("id")
	h.publishSomeEvent()
	halfClosed := func(method, path, body string) int {
		t.Helper()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nApi-Key: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, admin, len(body), body)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	try := func(method, path, body, step string) {
		t.Helper()
		faults.before = func(called string) error {
			if step == "" || called == step {
				select {
				case <-*ended.Load():
				case <-time.After(time.Minute):
					t.Errorf("%s %s: the request's context has not ended", method, path)
				}
			}
			return nil
		}
		if status := halfClosed(method, path, body); status >= 500 || status == 401 || status == 403 {
			t.Errorf("%s %s: got %d", method, path, status)
		}
	}
	for _, step := range steps(key, webhook) {
		try(step.method, step.path, step.body, step.store)
	}
	try("GET", "/v2/environments", "", "KeyByHash")
	try("GET", "/settings/keys", "", "ListKeys")
	faults.before = func(string) error { return nil }
	if log.String() != "" {
		t.Errorf("log: %s", log)
	}
}
