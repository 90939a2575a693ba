package client

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// An Error is an error response of the API or of the host's own routes. It contains no secret.
type Error struct {
	Status int // the HTTP status, 300 or more

	// Code is one of the Code constants of package auth, or a code of the host's own routes. It is
	// empty if the response is not in the API's format, such as a proxy's.
	Code string

	// Message is a text for people. It describes the error and how to correct it. Without a Code
	// it is the status text.
	Message string

	// Field names the body field, query parameter or header that caused a 400, such as "expiresAt";
	// "body" means the body as a whole. It is empty for other errors.
	Field string

	// Errors describes each invalid field, beginning with Field, if there are several.
	Errors []FieldError

	// RequiredScopes are scopes that would allow the request, if it failed for lack of scopes.
	RequiredScopes []string

	// RequiredResources are resources that the key would need, if it is limited to other resources.
	RequiredResources []string

	// RequestID is the X-Request-Id of the response. It is empty unless the host sets the header.
	RequestID string

	// RetryAfter is how long to wait before another attempt; zero if the response did not say.
	RetryAfter time.Duration
}

// A FieldError describes one of several invalid fields of a request.
type FieldError struct {
	Field   string // as in [Error]
	Message string // for people
}

// Error returns the status, the code, the message and the request ID.
func (e *Error) Error() string {
	text := fmt.Sprintf("%d %s", e.Status, e.Message)
	if e.Code != "" {
		text = fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message)
	}
	if e.RequestID != "" {
		text += " (request " + e.RequestID + ")"
	}
	return text
}

// ErrCreatedBefore is returned by a creation, together with the object, if an earlier attempt or an
// earlier call with the same [IdempotencyKey] created the object. The key's value or the webhook's
// secret was only in the response to that request. If that response was lost, rotate the key or
// secret.
var ErrCreatedBefore = errors.New("created by an earlier request; its secret is not shown again")

// maxErrorBody is the maximum number of bytes that are read of an error response.
const maxErrorBody = 64 << 10

// errorOf returns the error that a response describes, or nil if its status is below 300.
func errorOf(response *http.Response) error {
	if response.StatusCode < http.StatusMultipleChoices {
		return nil
	}
	e := &Error{RequestID: response.Header.Get("X-Request-Id"), RetryAfter: retryAfter(response.Header)}
	var body struct {
		Error struct {
			Code, Message, Field string
			Errors               []FieldError
			RequiredScopes       []string
			RequiredResources    []string
		}
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err == nil && json.Unmarshal(data, &body) == nil && body.Error.Code != "" {
		of := &body.Error
		e.Code, e.Message, e.Field, e.Errors = of.Code, of.Message, of.Field, of.Errors
		e.RequiredScopes, e.RequiredResources = of.RequiredScopes, of.RequiredResources
	} else {
		e.Message = cmp.Or(http.StatusText(response.StatusCode), "Unknown Status")
	}
	e.Status = response.StatusCode
	return e
}

func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
