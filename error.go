package storageapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// An Error is an error response of the API, for Go clients. Get it with [errors.As].
type Error struct {
	// Status is the HTTP status, 400 or more.
	Status int

	// Code is one of the Code constants of package auth, or a code of the host's own
	// routes. It is empty if the response is not in the API's format, such as a proxy's.
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

	// RequiredResources are resources that the key would need, if it is limited to others.
	RequiredResources []string
}

// A FieldError describes one of several invalid fields of a request.
type FieldError struct {
	Field   string // as in [Error]
	Message string // for people
}

// Error returns the status, the code and the message.
func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%d %s", e.Status, e.Message)
	}
	return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message)
}

// maxErrorBody is the maximum number of bytes that are read of an error response.
const maxErrorBody = 64 << 10

// DecodeError returns an [*Error] if the response's status is 400 or more, and nil
// otherwise. It reads up to 64 KiB of an error's body and does not read any other body.
// The caller closes the body.
func DecodeError(response *http.Response) error {
	if response.StatusCode < http.StatusBadRequest {
		return nil
	}
	var body struct {
		Error struct {
			Code, Message, Field string
			Errors               []FieldError
			RequiredScopes       []string
			RequiredResources    []string
		}
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err == nil {
		err = json.Unmarshal(data, &body)
	}
	if err != nil || body.Error.Code == "" {
		return &Error{Status: response.StatusCode, Message: cmp.Or(http.StatusText(response.StatusCode), "Unknown Status")}
	}
	e := &body.Error
	return &Error{
		Status: response.StatusCode, Code: e.Code, Message: e.Message, Field: e.Field, Errors: e.Errors,
		RequiredScopes: e.RequiredScopes, RequiredResources: e.RequiredResources,
	}
}
