package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3filter"
)

// A call is a request to send. The zero call has no key and no body.
type call struct {
	op     *operation
	method string            // the method of op, HEAD instead of GET, or an undocumented method
	path   string            // escaped, with values for all parameters
	ids    map[string]string // unescaped values by parameter name
	query  string
	header http.Header
	body   []byte
}

// An exchange is a call with its response.
type exchange struct {
	call
	invalid error // how the request violates the document, or nil
	status  int
	header  http.Header
	body    []byte
}

// secrets matches the values of keys and signing secrets.
var secrets = regexp.MustCompile(`\b(sak|acme|whsec)_[0-9A-Za-z+/=]+`)

// String returns the exchange as text without secrets.
func (e *exchange) String() string {
	text := fmt.Sprintf("%s: %s %s?%s %v %.300q\n\tanswered %d %v %.600s\n\tby the document the request is: %v",
		e.op.id, e.method, e.path, e.query, e.call.header, e.call.body, e.status, e.header, e.body, e.invalid)
	return secrets.ReplaceAllString(text, "${1}_…")
}

// client does not follow redirects.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// exchange sends the call. It returns an error unless the response matches the document.
func (h *host) exchange(c call) (*exchange, error) {
	request, err := http.NewRequestWithContext(h.Context(), c.method, h.url, bytes.NewReader(c.body))
	if err != nil {
		return nil, err
	}
	request.URL.Opaque = c.path // sends the path unchanged
	request.URL.RawQuery = c.query
	request.Header = c.header.Clone()
	done := &exchange{call: c, invalid: checkRequest(h.Context(), c)}

	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", done, err)
	}
	defer response.Body.Close()
	done.status, done.header = response.StatusCode, response.Header
	if done.body, err = io.ReadAll(response.Body); err != nil {
		return nil, fmt.Errorf("%v: %w", done, err)
	}
	h.seen.add(c.op.id, done.status)
	if err := done.check(h.Context()); err != nil {
		return nil, fmt.Errorf("%w\n%v", err, done)
	}
	return done, nil
}

// checkRequest returns an error that says how the request violates the document, or nil.
func checkRequest(ctx context.Context, c call) error {
	// c.path may be invalid in a URL, but kin-openapi needs only the query.
	query, err := url.ParseQuery(c.query)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, c.method, "/", bytes.NewReader(c.body))
	if err != nil {
		return err
	}
	request.URL.RawQuery = query.Encode()
	request.Header = c.header.Clone()
	return openapi3filter.ValidateRequest(ctx, &openapi3filter.RequestValidationInput{
		Request: request, PathParams: c.ids, QueryParams: query, Route: &c.op.Route, Options: options(),
	})
}

func options() *openapi3filter.Options {
	return &openapi3filter.Options{
		IncludeResponseStatus: true,
		SkipSettingDefaults:   true,
		AuthenticationFunc: func(_ context.Context, input *openapi3filter.AuthenticationInput) error {
			if len(input.RequestValidationInput.Request.Header.Values(input.SecurityScheme.Name)) != 1 {
				return errors.New("needs one " + input.SecurityScheme.Name)
			}
			return nil
		},
	}
}

// undocumented returns the first of names that is in neither documented nor common, ignoring case,
// or "".
func undocumented(names, documented iter.Seq[string], common ...string) string {
	known := append(slices.Collect(documented), common...)
	for name := range names {
		if !slices.ContainsFunc(known, func(n string) bool { return strings.EqualFold(n, name) }) {
			return name
		}
	}
	return ""
}

// check returns an error unless the response matches the document. It checks the status, the body,
// the code of an error, and that exactly the documented headers are present.
func (e *exchange) check(ctx context.Context) error {
	err := openapi3filter.ValidateResponse(ctx, &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: &http.Request{Method: e.op.Method}, Route: &e.op.Route},
		Status:                 e.status,
		Header:                 e.header,
		Body:                   io.NopCloser(bytes.NewReader(e.body)),
		Options:                e.options(),
	})
	if err != nil {
		return err
	}
	documented := e.op.Operation.Responses.Status(e.status).Value
	if name := undocumented(maps.Keys(e.header), maps.Keys(documented.Headers), "Content-Length", "Content-Type", "Date", "X-Content-Type-Options"); name != "" {
		return fmt.Errorf("header %s is not documented", name)
	}
	switch {
	case e.method == http.MethodHead:
		return nil
	case len(documented.Content) == 0 && len(e.body) > 0:
		return errors.New("a body where none is documented")
	case len(documented.Content) > 0 && e.header.Get("Content-Type") != "application/json; charset=utf-8" && !e.isEventBody():
		return errors.New("the Content-Type is another")
	}
	if code := documented.Extensions["x-code"]; e.status >= 400 && code != e.code() {
		return fmt.Errorf("the code is not %v", code)
	}
	return nil
}

// isEventBody reports whether the response is the body of an event, exactly as it was sent.
func (e *exchange) isEventBody() bool {
	return e.status == http.StatusOK && strings.HasSuffix(e.op.Path, "/body") && e.header.Get("Content-Type") == "application/json"
}

// options returns the options for validation. They skip the body of a response to HEAD, because it
// has none.
func (e *exchange) options() *openapi3filter.Options {
	o := options()
	o.ExcludeResponseBody = e.method == http.MethodHead
	return o
}

func (e *exchange) code() any {
	failure, _ := e.object()["error"].(map[string]any)
	return failure["code"]
}

// object returns the decoded body if it is a JSON object, or nil.
func (e *exchange) object() map[string]any {
	var object map[string]any
	_ = json.Unmarshal(e.body, &object)
	return object
}

// text returns a string field of the body.
func (e *exchange) text(name string) string {
	text, _ := e.object()[name].(string)
	return text
}

// checkEvent returns the type of a received event. It returns an error unless the request matches
// the webhooks section of the document.
func (d *document) checkEvent(request *http.Request) (string, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return "", err
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	var event struct{ ID, Type string }
	if err := json.Unmarshal(body, &event); err != nil {
		return "", err
	}
	item := d.spec.Webhooks[event.Type]
	if item == nil || item.Post == nil || request.Method != http.MethodPost {
		return event.Type, fmt.Errorf("the document has no webhook %s %q", request.Method, event.Type)
	}
	if id := request.Header.Get("Webhook-Id"); id != event.ID {
		return event.Type, fmt.Errorf("webhook-id is %q, the event's id %q", id, event.ID)
	}
	op := d.operation("", item, http.MethodPost, item.Post)
	if name := undocumented(maps.Keys(request.Header), op.parameterNames(), "Content-Length", "Content-Type", "User-Agent"); name != "" {
		return event.Type, fmt.Errorf("header %s is not documented", name)
	}
	return event.Type, openapi3filter.ValidateRequest(request.Context(), &openapi3filter.RequestValidationInput{
		Request: request, Route: &op.Route, Options: options(),
	})
}
