package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/storageapi/storageapi/apierr"
)

// The error codes, each with its status. The first two are defined by docs/spec.md, section 7.
const (
	CodeUnauthorized         = "UNAUTHORIZED"           // 401: no valid key
	CodeForbidden            = "FORBIDDEN"              // 403: the key lacks permission
	CodeValidation           = "VALIDATION_ERROR"       // 400: the message and the member field name the invalid field
	CodeNotFound             = "NOT_FOUND"              // 404
	CodeMethodNotAllowed     = "METHOD_NOT_ALLOWED"     // 405, with Allow
	CodeConflict             = "CONFLICT"               // 409: the current state forbids it
	CodePreconditionFailed   = "PRECONDITION_FAILED"    // 412: If-Match does not match
	CodePayloadTooLarge      = "PAYLOAD_TOO_LARGE"      // 413
	CodeUnsupportedMediaType = "UNSUPPORTED_MEDIA_TYPE" // 415
	CodeRateLimit            = "RATE_LIMIT_EXCEEDED"    // 429, with Retry-After
	CodeInternal             = "INTERNAL_ERROR"         // 500: not the client's fault
	CodeUnavailable          = "SERVICE_UNAVAILABLE"    // 503, with Retry-After: the store is unavailable; the message says whether the request may have taken effect
)

// ErrUnavailable means that the store cannot be reached or written, for example because of a full
// disk. Errors of a store wrap it. The call has had no effect, and may succeed later.
var ErrUnavailable = errors.New("the store is unavailable")

// ErrInterrupted means that a write was interrupted, for example by a lost connection. Errors of a
// store wrap it. The write may have taken effect. The same call may succeed later.
var ErrInterrupted = errors.New("the store was interrupted; the change may have taken effect")

// WriteError responds with the error body defined in docs/spec.md, section 7:
// {"error":{"code":…,"message":…}}, followed by a newline. A host can use it to report errors of
// its own routes in the library's format. The message is shown to the client and must not contain a
// secret.
func WriteError(w http.ResponseWriter, status int, code, message string) {
	writeError(w, status, errorBody{Code: code, Message: message})
}

// WriteInvalid answers 400 VALIDATION_ERROR for one field of the body, query parameter or header of
// a request. The message is the field's name followed by the rule: "name is required.". The name is
// also in the field "field" of the error.
func WriteInvalid(w http.ResponseWriter, field, rule string) {
	WriteInvalidFields(w, &apierr.ValidationError{Field: field, Reason: rule})
}

// WriteInvalidFields is like [WriteInvalid], but for one or more invalid fields. For several fields,
// the message states all rules, "field" is the name of the first field, and "errors" lists each
// field with its message.
func WriteInvalidFields(w http.ResponseWriter, wrong ...*apierr.ValidationError) {
	body := errorBody{Code: CodeValidation, Field: wrong[0].Field}
	var messages []string
	for _, rule := range wrong {
		message := rule.Error() + "."
		messages = append(messages, message)
		body.Errors = append(body.Errors, fieldError{rule.Field, message})
	}
	body.Message = strings.Join(messages, " ")
	if len(wrong) == 1 {
		body.Errors = nil
	}
	writeError(w, http.StatusBadRequest, body)
}

// An errorBody is the value of "error" in an error response.
type errorBody struct {
	Code              string       `json:"code"`
	Message           string       `json:"message"`
	Field             string       `json:"field,omitempty"`
	Errors            []fieldError `json:"errors,omitempty"`
	RequiredScopes    []string     `json:"requiredScopes,omitempty"`
	RequiredResources []string     `json:"requiredResources,omitempty"`
}

// A fieldError describes one of several invalid fields.
type fieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

func writeError(w http.ResponseWriter, status int, body errorBody) {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false) // "<" is easier to read unescaped
	_ = encoder.Encode(struct {
		Error errorBody `json:"error"`
	}{body}) // encoding strings cannot fail
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(data.Bytes())
}

// WriteInternal answers 500 INTERNAL_ERROR without details.
func WriteInternal(w http.ResponseWriter) {
	WriteError(w, http.StatusInternalServerError, CodeInternal, "Something went wrong on our side. Try again later.")
}

// WriteFailure answers a request that failed through no fault of the client. If err is
// [ErrUnavailable] or [ErrInterrupted], it answers 503 SERVICE_UNAVAILABLE with Retry-After,
// otherwise it calls [WriteInternal].
func WriteFailure(w http.ResponseWriter, err error) {
	var message string
	switch {
	case errors.Is(err, ErrInterrupted):
		message = "The service was interrupted. The change may have been made. Check before you retry, or retry with the same Idempotency-Key."
	case errors.Is(err, ErrUnavailable):
		message = "The service is unavailable right now. Nothing was changed. Retry the request."
	default:
		WriteInternal(w)
		return
	}
	w.Header().Set("Retry-After", "5")
	WriteError(w, http.StatusServiceUnavailable, CodeUnavailable, message)
}
