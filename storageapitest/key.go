package storageapitest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
)

// A Key is an API key and its value. Get one from [Kit.Key]: a Key literal cannot send requests.
type Key struct {
	apikeys.Key
	Value string // value of the Api-Key header

	t testing.TB
}

// Do sends a request with the key to a handler, in this goroutine, and returns its
// response, whose body need not be closed. A non-empty body is sent as JSON.
func (k *Key) Do(handler http.Handler, method, path, body string) *http.Response {
	k.t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	request := httptest.NewRequestWithContext(k.t.Context(), method, path, content)
	request.Header.Set(auth.HeaderName, k.Value)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Result()
}
