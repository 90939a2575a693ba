package auth_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// keys is a Verifier that accepts the tokens in the map. For "broken" it returns errBroken.
type keys map[string]auth.Principal

var errBroken = errors.New("disk /dev/sda1 is full")

func (k keys) Verify(_ context.Context, token string) (auth.Principal, error) {
	if token == "broken" {
		return auth.Principal{}, fmt.Errorf("verify: %w", errBroken)
	}
	if p, ok := k[token]; ok {
		return p, nil
	}
	return auth.Principal{}, fmt.Errorf("wrapped: %w", auth.ErrUnauthorized)
}

var (
	reader  = auth.Principal{Account: "acct_1", KeyID: "key_reader", Scopes: scopes.Of(scopes.FilesRead)}
	writer  = auth.Principal{Account: "acct_2", KeyID: "key_writer", Scopes: scopes.Of(scopes.FilesWrite)}
	allKeys = keys{"reader": reader, "writer": writer, "": reader, "reader, reader": reader}
)

// newAuthenticator returns an Authenticator that accepts allKeys, and the buffer with its log.
func newAuthenticator(t *testing.T) (*auth.Authenticator, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	a, err := auth.New(allKeys, auth.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return a, &log
}

// request returns a request with the given Api-Key header values.
func request(values ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/v2/environments", nil)
	for _, value := range values {
		r.Header.Add("Api-Key", value)
	}
	return r
}

// serve returns the handler's response, and its body without the trailing newline.
func serve(t *testing.T, handler http.Handler, r *http.Request) (*http.Response, string) {
	t.Helper()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	response := recorder.Result()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, strings.TrimSuffix(string(body), "\n")
}

// unreachable is a handler that must not be called.
func unreachable(t *testing.T) http.Handler {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the guarded handler was called") })
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s does not panic", what)
		}
	}()
	f()
}
