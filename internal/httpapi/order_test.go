package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/scopes"
)

// TestOrderOfChecks sends requests that fail one check and also all later ones. The first check
// that fails must determine the response.
func TestOrderOfChecks(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	_, narrow := h.key(alice, scopes.FilesRead)   // may create webhooks only for files.expiring
	_, useless := h.key(alice, scopes.FilesWrite) // may not create webhooks
	other, _ := h.key(alice, scopes.SecretsRead)

	mediaType := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Content-Type", value) }
	}
	const (
		oneWebhook = webhooksPath + "/wh_" + someULID
		badJSON    = `{"name":`
		pastAndFar = `{"name":"a","scopes":["account:read"],"expiresAt":"2020-01-01"}`
		tooFar     = `{"name":"a","scopes":["account:read"]}`
		notRead    = `{"url":"https://example.com","events":["balance.low"]}`
		badEvent   = `{"url":"https://example.com","events":["balance.low","nope"]}`
	)
	huge := strings.Repeat("{", 64<<10+1)
	text, asJSON := mediaType("text/plain"), mediaType("application/json")
	match, stale := ifMatch(`no tag`), ifMatch(`"stale"`)
	tests := []struct {
		name   string
		method string
		path   string
		token  string
		body   string
		change func(*http.Request)
		status int
		code   string
	}{
		{"key before all", "PUT", "/v2/nothing", "bad", huge, text, 401, "UNAUTHORIZED"},
		{"key before method", "PUT", keysPath, "bad", huge, text, 401, "UNAUTHORIZED"},
		{"path before method and body", "BREW", "/v2/nothing", useless, huge, text, 404, "NOT_FOUND"},
		{"method before authority and body", "PUT", webhooksPath, useless, huge, text, 405, "METHOD_NOT_ALLOWED"},
		{"method before unknown id", "PUT", webhooksPath + "/x", useless, huge, text, 405, "METHOD_NOT_ALLOWED"},
		{"authority before media type", "POST", webhooksPath, useless, huge, text, 403, "FORBIDDEN"},
		{"authority before size", "POST", webhooksPath, useless, huge, asJSON, 403, "FORBIDDEN"},
		{"authority before syntax", "POST", webhooksPath, useless, badJSON, asJSON, 403, "FORBIDDEN"},
		{"authority before query", "GET", keysPath + "?limit=0", useless, "", asJSON, 403, "FORBIDDEN"},
		{"authority before unknown id", "GET", keysPath + "/x", useless, "", asJSON, 403, "FORBIDDEN"},
		{"authority before unknown webhook", "DELETE", webhooksPath + "/wh_" + someULID, useless, "", asJSON, 403, "FORBIDDEN"},
		{"media type before size", "POST", keysPath, narrow, huge, text, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"media type before syntax", "POST", keysPath, narrow, badJSON, text, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"media type before values", "POST", keysPath, narrow, pastAndFar, text, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"size before syntax", "POST", keysPath, narrow, huge, asJSON, 413, "PAYLOAD_TOO_LARGE"},
		{"syntax before target", "POST", keysPath, narrow, strings.Replace(tooFar, "{", `{"x":1,`, 1), asJSON, 400, "VALIDATION_ERROR"},
		{"values before target", "POST", keysPath, narrow, pastAndFar, asJSON, 400, "VALIDATION_ERROR"},
		{"events before target", "POST", webhooksPath, narrow, badEvent, asJSON, 400, "VALIDATION_ERROR"},
		{"target of a key", "POST", keysPath, narrow, tooFar, asJSON, 403, "FORBIDDEN"},
		{"target of a webhook", "POST", webhooksPath, narrow, notRead, asJSON, 403, "FORBIDDEN"},
		{"authority before a change's media type", "PATCH", oneWebhook, useless, huge, text, 403, "FORBIDDEN"},
		{"media type of a change", "PATCH", oneWebhook, narrow, badJSON, text, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"a change has a body", "PATCH", oneWebhook, narrow, "", nil, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"values of a change before unknown webhook", "PATCH", oneWebhook, narrow, `{"url":"http://example.com"}`, asJSON, 400, "VALIDATION_ERROR"},
		{"values of a change before what is no id", "PATCH", webhooksPath + "/x", narrow, `{"events":["nope"]}`, asJSON, 400, "VALIDATION_ERROR"},
		{"If-Match of a change before unknown webhook", "PATCH", oneWebhook, narrow, `{}`, ifMatch(`x`), 400, "VALIDATION_ERROR"},
		{"unknown webhook before its tag", "PATCH", oneWebhook, narrow, `{}`, ifMatch(`"x"`), 404, "NOT_FOUND"},
		{"media type of a rotation", "POST", oneWebhook + "/rotate-secret", narrow, badJSON, text, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"values of a rotation before unknown webhook", "POST", oneWebhook + "/rotate-secret", narrow, `{"graceSeconds":-1}`, asJSON, 400, "VALIDATION_ERROR"},
		{"rotation of an unknown webhook", "POST", oneWebhook + "/rotate-secret", narrow, "", nil, 404, "NOT_FOUND"},
		{"a test has no body", "POST", oneWebhook + "/test", narrow, `{"url":"https://example.com"}`, asJSON, 400, "VALIDATION_ERROR"},
		{"test of an unknown webhook", "POST", oneWebhook + "/test", narrow, "", nil, 404, "NOT_FOUND"},
		{"a redelivery has no body", "POST", oneWebhook + "/deliveries/x/redeliver", narrow, `[]`, asJSON, 400, "VALIDATION_ERROR"},
		{"redelivery of an unknown webhook", "POST", oneWebhook + "/deliveries/x/redeliver", narrow, "", nil, 404, "NOT_FOUND"},
		{"values of a recovery before unknown webhook", "POST", oneWebhook + "/recoveries", narrow, `{"from":"2999-01-01"}`, asJSON, 400, "VALIDATION_ERROR"},
		{"recovery of an unknown webhook", "POST", oneWebhook + "/recoveries", narrow, "", nil, 404, "NOT_FOUND"},
		{"authority before the query of deliveries", "GET", oneWebhook + "/deliveries?limit=0", narrow, "", nil, 403, "FORBIDDEN"},
		{"query of deliveries before unknown webhook", "GET", oneWebhook + "/deliveries?state=x", admin, "", nil, 400, "VALIDATION_ERROR"},
		{"deliveries of an unknown webhook", "GET", oneWebhook + "/deliveries", admin, "", nil, 404, "NOT_FOUND"},
		{"authority before If-Match", "POST", webhooksPath, useless, "", match, 403, "FORBIDDEN"},
		{"media type before all of PATCH", "PATCH", keysPath + "/x", narrow, badJSON, text, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{"a name before unknown key", "PATCH", keysPath + "/x", narrow, `{"name":""}`, asJSON, 400, "VALIDATION_ERROR"},
		{"If-Match before unknown key", "DELETE", keysPath + "/x", narrow, "", match, 400, "VALIDATION_ERROR"},
		{"a grace before unknown key", "POST", keysPath + "/x/rotate", narrow, `{"graceSeconds":-1}`, asJSON, 400, "VALIDATION_ERROR"},
		{"target of an update", "PATCH", keysPath + "/" + other, narrow, `{"name":"b"}`, stale, 403, "FORBIDDEN"},
		{"target of a rotation", "POST", keysPath + "/" + other + "/rotate", narrow, "", stale, 403, "FORBIDDEN"},
		{"target of a deletion", "DELETE", keysPath + "/" + other, narrow, "", stale, 403, "FORBIDDEN"},
		{"unknown key with If-Match", "PATCH", keysPath + "/key_" + someULID, useless, `{"name":"b"}`, stale, 404, "NOT_FOUND"},
		{"unknown key", "DELETE", keysPath + "/key_" + someULID, useless, "", asJSON, 404, "NOT_FOUND"},
		{"unknown webhook", "DELETE", webhooksPath + "/wh_" + someULID, narrow, "", asJSON, 404, "NOT_FOUND"},
	}
	const keysMade = 4
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if test.change == nil {
				test.change = func(*http.Request) {}
			}
			h.do(test.method, test.path, test.token, test.body, test.change).want(test.status, test.code)
		})
	}
	if got := h.do("GET", keysPath, admin, "").body; strings.Count(got, `{"id":`) != keysMade {
		t.Errorf("a refused request left something behind: %s", got)
	}
	if got := h.do("GET", webhooksPath, admin, "").body; got != `{"data":[],"nextCursor":null,"hasMore":false}` {
		t.Errorf("a refused request left something behind: %s", got)
	}
}

func TestMethods(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	allow := map[string]string{
		keysPath:                                     "GET, HEAD, POST",
		keysPath + "/key_" + someULID:                "DELETE, GET, HEAD, PATCH",
		webhooksPath:                                 "GET, HEAD, POST",
		webhooksPath + "/wh_" + someULID:             "DELETE, GET, HEAD, PATCH",
		webhooksPath + "/x/rotate-secret":            "POST",
		webhooksPath + "/x/test":                     "POST",
		webhooksPath + "/x/deliveries":               "GET, HEAD",
		webhooksPath + "/x/deliveries/y":             "GET, HEAD",
		webhooksPath + "/x/deliveries/y/body":        "GET, HEAD",
		webhooksPath + "/x/deliveries/y/explanation": "GET, HEAD",
		webhooksPath + "/x/deliveries/y/redeliver":   "POST",
		eventsPath:                                "GET, HEAD",
		eventsPath + "/y/body":                    "GET, HEAD",
		webhooksPath + "/x/recoveries":            "POST",
		webhooksPath + "/x/recoveries/y":          "GET, HEAD",
		keysPath + "/key_" + someULID + "/rotate": "POST",
	}
	for path, allowed := range allow {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "BREW"} {
			got := h.do(method, path, admin, "")
			if strings.Contains(", "+allowed+",", ", "+method+",") {
				if got.status == 405 {
					t.Errorf("%s %s: got 405", method, path)
				}
				continue
			}
			if got.status != 405 || method != "HEAD" && got.code() != "METHOD_NOT_ALLOWED" {
				t.Errorf("%s %s: got %d %s", method, path, got.status, got.body)
			}
			if got.header.Get("Allow") != allowed {
				t.Errorf("%s %s: got Allow %q, want %q", method, path, got.header.Get("Allow"), allowed)
			}
		}
	}
}

// TestHead checks that HEAD returns the same status and headers as GET.
func TestHead(t *testing.T) {
	h := serve(t, newClock().config())
	id, token := h.key(alice, scopes.AccountRead)
	_, useless := h.key(alice, scopes.FilesWrite)
	for _, test := range []struct{ path, token string }{
		{keysPath, token},
		{keysPath + "/" + id, token},
		{keysPath + "/x", token},
		{keysPath + "?limit=0", token},
		{webhooksPath, token},
		{webhooksPath, useless},
		{"/v2/nothing", token},
		{keysPath, ""},
	} {
		get, head := h.do("GET", test.path, test.token, ""), h.do("HEAD", test.path, test.token, "")
		if get.status != head.status || get.header.Get("Content-Type") != head.header.Get("Content-Type") {
			t.Errorf("%s: GET %d, HEAD %d", test.path, get.status, head.status)
		}
	}
}

func TestSize(t *testing.T) {
	h := serve(t, newClock().config())
	admin := h.admin(alice)
	body := func(size int) string {
		object := `{"name":"a","scopes":["files:read"]}`
		return object + strings.Repeat(" ", size-len(object))
	}
	h.do("POST", keysPath, admin, body(64<<10)).want(201, "")
	h.do("POST", keysPath, admin, body(64<<10+1)).want(413, "PAYLOAD_TOO_LARGE")
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	h.do("POST", keysPath, admin, body(64<<10), chunked).want(201, "")
	h.do("POST", keysPath, admin, body(64<<10+1), chunked).want(413, "PAYLOAD_TOO_LARGE")
	h.do("POST", keysPath, admin, body(10<<20), chunked).want(413, "PAYLOAD_TOO_LARGE")

	// The API must not wait for a body whose declared size is too large. (net/http itself may read
	// up to 256 KiB of such a body to keep the connection.)
	headers := []string{"POST " + keysPath + " HTTP/1.1", "Host: x", "Api-Key: " + admin, "Content-Type: application/json"}
	h.raw(append(headers, "Content-Length: 1000000", "", "")...).want(413, "PAYLOAD_TOO_LARGE")
	h.raw(append(headers, "Content-Length: 65537", "Expect: 100-continue", "", "")...).want(413, "PAYLOAD_TOO_LARGE")
	h.raw(append(headers, "Transfer-Encoding: chunked", "", "zz", "")...).want(400, "VALIDATION_ERROR")
}
