package storageapitest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
)

// A Key is an API key and its value, usually from [Kit.Key]. To send requests with the value of a
// key that code under test created, use &Key{Value: value}.
type Key struct {
	apikeys.Key
	Value string // value of the Api-Key header
}

// Do sends a request with the key to a handler, in this goroutine, and returns its
// response, whose body need not be closed. A non-empty body is sent as JSON.
func (k *Key) Do(handler http.Handler, method, path, body string) *http.Response {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	request := httptest.NewRequest(method, path, content)
	request.Header.Set(auth.HeaderName, k.Value)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Result()
}
