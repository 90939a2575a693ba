package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/storageapi/storageapi"
)

// A client calls the API with a key.
type client struct{ base, key string }

// A request says more of a call than its method and path.
type request struct {
	ifMatch        string // ETag of what is to be changed: 412 if it has another by then
	idempotencyKey string // one's own, for a creation that may have to be tried again
	body           any    // sent as JSON; nil: none
}

// call makes a call and decodes the answer into the value that answer points to,
// unless that is nil. It returns the answer's ETag, if it has one. If the API
// refuses, the error is a [*storageapi.Error].
func (c client) call(ctx context.Context, method, path string, r request, answer any) (etag string, err error) {
	var content io.Reader
	if r.body != nil {
		data, err := json.Marshal(r.body)
		if err != nil {
			return "", err
		}
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{"Api-Key": c.key, "If-Match": r.ifMatch, "Idempotency-Key": r.idempotencyKey} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := storageapi.DecodeError(resp); err != nil {
		return "", fmt.Errorf("%s %s: %w", method, path, err)
	}
	if answer != nil {
		if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
			return "", fmt.Errorf("%s %s: %w", method, path, err)
		}
	}
	return resp.Header.Get("ETag"), nil
}

// refused returns nil if err is the API's refusal with that code, and prints it.
func refused(out io.Writer, err error, code string) error {
	var refusal *storageapi.Error
	if !errors.As(err, &refusal) || refusal.Code != code {
		return fmt.Errorf("want %s, got %v", code, err)
	}
	fmt.Fprintf(out, "  refused: %v\n", refusal)
	return nil
}
