package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/storageapi/storageapi"
)

// TestEmptyBodyOfUnknownLength sends bodies without a length or a media type, as some clients do
// for any POST. Only if the body is not empty may the API require a media type.
func TestEmptyBodyOfUnknownLength(t *testing.T) {
	protocols(t, func(t *testing.T, h *host, client *http.Client, faults *faulty) {
		admin := h.admin(alice)
		id, _ := h.key(alice, allScopes()...)
		made, err := h.api.Webhooks.Create(t.Context(), alice, anyWebhook)
		if err != nil {
			t.Fatal(err)
		}
		h.publishSomeEvent()
		hook := webhooksPath + "/" + made.ID
		for _, test := range []struct {
			path     string
			expected int
		}{
			{keysPath + "/" + id + "/rotate", 200},
			{hook + "/rotate-secret", 200},
			{hook + "/test", 200},
			{hook + "/recoveries", 202},
			{hook + "/deliveries/" + someEvent + "/redeliver", 202},
			{keysPath, 415},
			{webhooksPath, 415},
		} {
			for body, status := range map[string]int{"": test.expected, "{": 415, "{}": 415, strings.Repeat(" ", 70<<10): 415} {
				r, err := http.NewRequestWithContext(t.Context(), "POST", h.url+test.path, struct{ *strings.Reader }{strings.NewReader(body)})
				if err != nil {
					t.Fatal(err)
				}
				r.ContentLength = -1
				r.Header.Set("Api-Key", admin)
				response, err := client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				if got := read(t, "POST", response); got.status != status {
					t.Errorf("%s with %.9q: got %d %s, want %d", test.path, body, got.status, got.body, status)
				}
			}
		}
	})
}

// TestEmptyChunkedBody sends an empty chunked body as raw bytes.
func TestEmptyChunkedBody(t *testing.T) {
	h := serve(t, storageapi.Config{})
	admin := h.admin(alice)
	id, _ := h.key(alice, allScopes()...)
	chunked := func(path, chunks string, more ...string) reply {
		lines := append([]string{"POST " + path + " HTTP/1.1", "Host: x", "Connection: close", "Api-Key: " + admin, "Transfer-Encoding: chunked"}, more...)
		return h.raw(append(lines, "", chunks)...)
	}
	chunked(keysPath+"/"+id+"/rotate", "0\r\n\r\n").want(200, "")
	chunked(keysPath+"/"+id+"/rotate", "0\r\n\r\n", "Content-Type: application/json").want(200, "")
	chunked(keysPath+"/"+id+"/rotate", "2\r\n{}\r\n0\r\n\r\n", "Content-Type: application/json").want(200, "")
	chunked(keysPath+"/"+id+"/rotate", "2\r\n{}\r\n0\r\n\r\n").want(415, "UNSUPPORTED_MEDIA_TYPE")
	chunked(keysPath+"/"+id+"/rotate", "x\r\n").want(415, "UNSUPPORTED_MEDIA_TYPE")
	chunked(keysPath, "0\r\n\r\n").want(415, "UNSUPPORTED_MEDIA_TYPE")
}
