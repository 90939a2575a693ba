package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options are options of [New]. The zero Options works.
type Options struct {
	// HTTP sends the requests. The client never follows redirects, because another host must not
	// get the key. Default: a client with a timeout of a minute.
	HTTP *http.Client

	// Attempts is the maximum number of attempts of a call; 1 means no retries. Default: 4.
	Attempts int

	// MaxWait is the longest wait before a retry. If the service asks for a longer one, the call
	// fails at once, and [Error.RetryAfter] says how long to wait. Default: 30 s.
	MaxWait time.Duration
}

// A Client calls the API with one key. It is safe for concurrent use. Printing it shows no secret.
type Client struct {
	base    string
	key     Secret
	http    http.Client
	options Options
}

// New returns a client of the API at baseURL, including the host's prefix, such as
// "https://storage.example.com/v2". An empty key is for a private port that needs none.
func New(baseURL, key string, options Options) (*Client, error) {
	base, err := url.Parse(baseURL)
	switch {
	case err != nil:
		return nil, errors.New("client: the base URL cannot be parsed") // err may contain a password
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "", base.User != nil, base.RawQuery != "", base.Fragment != "":
		return nil, errors.New(`client: the base URL must be like "https://storage.example.com/v2", without user, query and fragment`)
	case strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }):
		return nil, errors.New("client: the key must consist of visible ASCII characters")
	}
	if options.HTTP == nil {
		options.HTTP = &http.Client{Timeout: time.Minute}
	}
	if options.Attempts == 0 {
		options.Attempts = 4
	}
	if options.MaxWait == 0 {
		options.MaxWait = 30 * time.Second
	}
	c := &Client{base: strings.TrimSuffix(base.String(), "/"), key: secretOf(key), http: *options.HTTP, options: options}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// Format prints the base URL without the key.
func (c Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "client of "+c.base) }

// A Secret is the value of a key or the secret of a webhook. It prints as "[redacted]", even in an
// unexported field. The zero Secret is empty.
type Secret struct {
	open func() string // not a string, because fmt prints unexported fields without their methods
}

const redacted = "[redacted]"

func secretOf(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{func() string { return text }}
}

// Reveal returns the secret itself, or "" for the zero Secret.
func (s Secret) Reveal() string {
	if s.IsZero() {
		return ""
	}
	return s.open()
}

// IsZero reports whether s is the zero Secret.
func (s Secret) IsZero() bool { return s.open == nil }

// UnmarshalText reads a secret from a response.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = secretOf(string(text))
	return nil
}

// Format prints "[redacted]".
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue returns "[redacted]".
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "[redacted]".
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// A CallOption changes a single call.
type CallOption func(*request)

// IfMatch makes a change or deletion only if the ETag of the key or webhook is still the given one.
// Otherwise the error has the status 412.
func IfMatch(etag string) CallOption {
	return func(r *request) { r.header.Set("If-Match", etag) }
}

// IdempotencyKey identifies a creation: 1 to 128 visible ASCII characters. Calls with the same key
// within 24 hours create one object, even by different processes; see [ErrCreatedBefore]. Without
// this option each call has a key of its own, which only its retries share.
func IdempotencyKey(key string) CallOption {
	return func(r *request) { r.header.Set("Idempotency-Key", key) }
}

// Do calls a route of the host's own, at a path below the base URL such as "/files?limit=1", with
// the client's key, errors and retries. in is sent as JSON unless it is nil. The response is
// decoded into out as JSON; if out is an [io.Writer], it receives the body as it is; if out is nil,
// the body is ignored. Do assumes that repeating a call is harmless, except for POST and PATCH
// without an [IdempotencyKey].
func (c *Client) Do(ctx context.Context, method, path string, in, out any, options ...CallOption) error {
	_, err := c.do(ctx, method, path, in, out, method != http.MethodPost && method != http.MethodPatch, options)
	return err
}

// A request is a call that may take several attempts.
type request struct {
	method, path string
	header       http.Header
	body         []byte // nil means none
	out          any
	repeatable   bool // a repetition has no further effect
}

// A response describes the last response to a request.
type response struct {
	status   int
	header   http.Header
	attempts int
	unsure   bool // an earlier attempt may have had an effect
}

func (c *Client) do(ctx context.Context, method, path string, in, out any, repeatable bool, options []CallOption) (done response, err error) {
	if !strings.HasPrefix(path, "/") { // otherwise the path could change the host, which would get the key
		return done, fmt.Errorf("%s %q: the path must begin with /", method, path)
	}
	r := &request{method: method, path: path, header: make(http.Header), out: out}
	for _, option := range options {
		option(r)
	}
	r.repeatable = (repeatable || r.header.Get("Idempotency-Key") != "") && r.header.Get("If-Match") == ""
	if in != nil {
		if r.body, err = json.Marshal(in); err != nil {
			return done, fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	for {
		done.attempts++
		err = c.attempt(ctx, r, &done)
		if err == nil {
			return done, nil
		}
		wait, again, undone := c.wait(r, err, done.attempts)
		if end, ok := ctx.Deadline(); !again || ok && time.Until(end) <= wait {
			return done, fmt.Errorf("%s %s: %w", method, path, err)
		}
		done.unsure = done.unsure || !undone
		select {
		case <-ctx.Done():
			return done, fmt.Errorf("%s %s: %w; before that: %w", method, path, context.Cause(ctx), err)
		case <-time.After(wait):
		}
	}
}

// wait returns how long to wait before the next attempt, whether to make one, and whether the
// failed attempt certainly had no effect.
func (c *Client) wait(r *request, err error, attempts int) (wait time.Duration, again, undone bool) {
	backoff := min(c.options.MaxWait, 250*time.Millisecond<<min(attempts-1, 10))
	wait = backoff/2 + mathrand.N(backoff/2+1)
	again = r.repeatable
	if refusal, ok := errors.AsType[*Error](err); ok {
		switch refusal.Status {
		case http.StatusTooManyRequests:
			again, undone = true, true
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		default:
			again = false
		}
		if refusal.RetryAfter > 0 {
			wait += refusal.RetryAfter
			again = again && refusal.RetryAfter <= c.options.MaxWait
		}
	} else if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		again, undone = true, true
	}
	_, final := errors.AsType[*finalError](err)
	return wait, again && !final && attempts < c.options.Attempts, undone
}

// A finalError is an error after which no further attempt is made.
type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

// attempt sends a request once and decodes the response.
func (c *Client) attempt(ctx context.Context, r *request, done *response) error {
	sent, err := http.NewRequestWithContext(ctx, r.method, c.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return &finalError{err}
	}
	sent.Header = r.header.Clone()
	if r.body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	if !c.key.IsZero() {
		sent.Header.Set("Api-Key", c.key.Reveal())
	}
	got, err := c.http.Do(sent)
	if err != nil {
		if ctx.Err() != nil {
			err = &finalError{context.Cause(ctx)}
		}
		return err
	}
	defer func() { _ = got.Body.Close() }()
	done.status, done.header = got.StatusCode, got.Header
	if err := errorOf(got); err != nil {
		return err
	}
	return decode(got, r.out)
}

// maxBody is the maximum size of a JSON response.
const maxBody = 64 << 20

// decode reads a response into out; see [Client.Do].
func decode(got *http.Response, out any) error {
	switch out := out.(type) {
	case nil:
		return nil
	case io.Writer:
		if n, err := io.Copy(out, got.Body); err != nil && n > 0 {
			return &finalError{err}
		} else if err != nil {
			return err
		}
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(got.Body, maxBody))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, out); err != nil {
		return &finalError{fmt.Errorf("the response (%d, %q) is not the API's JSON: %w", got.StatusCode, got.Header.Get("Content-Type"), err)}
	}
	if tagged, ok := out.(interface{ setETag(string) }); ok {
		tagged.setETag(got.Header.Get("ETag"))
	}
	return nil
}

// create sends a creation, with an idempotency key if the options have none.
func create[T any](ctx context.Context, c *Client, path string, in any, options []CallOption) (made T, err error) {
	options = append([]CallOption{IdempotencyKey(rand.Text())}, options...)
	done, err := c.do(ctx, http.MethodPost, path, in, &made, true, options)
	if err == nil && done.status == http.StatusOK {
		err = ErrCreatedBefore
	}
	return made, err
}

// get returns the object at a path.
func get[T any](ctx context.Context, c *Client, path string) (found T, err error) {
	_, err = c.do(ctx, http.MethodGet, path, nil, &found, true, nil)
	return found, err
}

// remove deletes the object at a path. If an earlier attempt may have deleted the object, a
// not-found error counts as success.
func (c *Client) remove(ctx context.Context, path string, options []CallOption) error {
	done, err := c.do(ctx, http.MethodDelete, path, nil, nil, true, options)
	refusal, refused := errors.AsType[*Error](err)
	switch {
	case refused && refusal.Code == "NOT_FOUND" && done.unsure:
		return nil
	case err == nil && done.status != http.StatusNoContent:
		return fmt.Errorf("DELETE %s: the response (%d) is not the API's", path, done.status)
	}
	return err
}
