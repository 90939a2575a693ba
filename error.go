package storageapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// An Error is an answer of the API that says what went wrong, for programs that
// call it. Use [errors.As] to get at it.
type Error struct {
	// Status is that of the answer, 400 or more.
	Status int

	// Code is one of the Code constants of package auth, or of the host's own
	// routes. It is empty if the answer is not of the API's form, such as that of
	// a proxy on the way.
	Code string

	// Message is for people: what was wrong and what would be right. Without a
	// Code it is the text of the status.
	Message string
}

// Error returns the status, the code and the message.
func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("%d %s", e.Status, e.Message)
	}
	return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Message)
}

// maxErrorBody bounds what is read of an answer that says what went wrong.
const maxErrorBody = 64 << 10

// DecodeError returns an [*Error] if the answer's status is 400 or more, and nil
// otherwise. Of the body of an error it reads up to 64 KiB; it does not touch any other
// body. The caller closes it.
func DecodeError(response *http.Response) error {
	if response.StatusCode < http.StatusBadRequest {
		return nil
	}
	var body struct {
		Error struct{ Code, Message string }
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err == nil {
		err = json.Unmarshal(data, &body)
	}
	if err != nil || body.Error.Code == "" {
		return &Error{Status: response.StatusCode, Message: cmp.Or(http.StatusText(response.StatusCode), "Unknown Status")}
	}
	return &Error{Status: response.StatusCode, Code: body.Error.Code, Message: body.Error.Message}
}
