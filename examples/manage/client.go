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

// A request has the optional parts of a call.
type request struct {
	ifMatch        string // expected ETag; the API answers 412 if the object has another
	idempotencyKey string // unique to a creation, so that it can be retried
	body           any    // sent as JSON; nil means no body
}

// call makes a call and decodes the response into the value that answer points to,
// unless answer is nil. It returns the response's ETag, or "". If the API refuses, the
// error is a [*storageapi.Error].
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

// refused prints err and returns nil if err is the API's refusal with the given code.
func refused(out io.Writer, err error, code string) error {
	var refusal *storageapi.Error
	if !errors.As(err, &refusal) || refusal.Code != code {
		return fmt.Errorf("want %s, got %v", code, err)
	}
	fmt.Fprintf(out, "  refused: %v\n", refusal)
	return nil
}
