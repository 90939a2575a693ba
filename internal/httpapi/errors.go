package httpapi

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/webhooks"
)

// What can be wrong with a request before a service sees it.
var (
	errNoRoute   = errors.New("no route")
	errMediaType = errors.New("media type is not JSON")
	errTooLarge  = errors.New("body is too large")
)

// What the services do not tell apart.
var (
	errNoDelivery = errors.New("no such delivery")
	errNoPayload  = errors.New("the delivery's event is gone")
	errNoRecovery = errors.New("no such recovery")
)

// errPrecondition says that If-Match does not hold.
var errPrecondition = errors.New("precondition failed")

// A requestError says which part of a request is wrong and what would be right.
type requestError struct{ field, reason string }

func (e *requestError) Error() string { return e.field + " " + e.reason }

// invalid returns a [*requestError].
func invalid(field, reason string) error { return &requestError{field, reason} }

// A methodError says that the path is right and the method is not.
type methodError struct{ allow string }

func (*methodError) Error() string { return "no such method here" }

// failures tells how errors are answered; those of other types are in
// [api.fail]. None of the messages depends on the request: nobody learns from
// one whether what they asked for exists elsewhere.
var failures = []struct {
	err     error
	status  int
	code    string
	message string
}{
	{errNoRoute, http.StatusNotFound, auth.CodeNotFound, "There is nothing at this path."},
	{errMediaType, http.StatusUnsupportedMediaType, auth.CodeUnsupportedMediaType, "The body must be JSON, sent as it is with Content-Type: application/json."},
	{errTooLarge, http.StatusRequestEntityTooLarge, auth.CodePayloadTooLarge, "The body must be at most 65536 bytes."},
	{errPrecondition, http.StatusPreconditionFailed, auth.CodePreconditionFailed, "This was changed since: If-Match does not hold its ETag. Get it again."},
	{auth.ErrCredentialChanged, http.StatusConflict, auth.CodeConflict, "This API key is being changed at this moment. Send the request again."},
	{apikeys.ErrNotFound, http.StatusNotFound, auth.CodeNotFound, "There is no API key with this id."},
	{apikeys.ErrExists, http.StatusConflict, auth.CodeConflict, "This API key exists already. Send the request again."},
	{apikeys.ErrIdempotencyMismatch, http.StatusConflict, auth.CodeConflict, reusedMessage},
	{apikeys.ErrCreatedThenDeleted, http.StatusConflict, auth.CodeConflict, "The API key that this request made is deleted. Send another Idempotency-Key to make another."},
	{webhooks.ErrNotFound, http.StatusNotFound, auth.CodeNotFound, "There is no webhook with this id."},
	{webhooks.ErrExists, http.StatusConflict, auth.CodeConflict, "This webhook exists already. Send the request again."},
	{webhooks.ErrIdempotencyMismatch, http.StatusConflict, auth.CodeConflict, reusedMessage},
	{webhooks.ErrCreatedThenDeleted, http.StatusConflict, auth.CodeConflict, "The webhook that this request made is deleted. Send another Idempotency-Key to make another."},
	{webhooks.ErrRecovering, http.StatusConflict, auth.CodeConflict, "A recovery of this webhook is under way. Send the request again when it is done."},
	{webhooks.ErrTesting, http.StatusConflict, auth.CodeConflict, "A test event is under way to this webhook, or too many are. Try again in a few seconds."},
	{errNoDelivery, http.StatusNotFound, auth.CodeNotFound, "There is no delivery of an event with this id to this webhook."},
	{errNoPayload, http.StatusConflict, auth.CodeConflict, "This event is not kept any more: it cannot be sent again."},
	{errNoRecovery, http.StatusNotFound, auth.CodeNotFound, "There is no recovery with this id of this webhook."},
}

const reusedMessage = "This Idempotency-Key was used for a request with another body. Use a new one for each request."

// replacedRefusal explains it to a value that a rotation has replaced.
const replacedRefusal = "This value of the API key was replaced by a rotation: it can delete its own key, and manage nothing else. Use the new value."

// leastPrivilegeRefusals explains [auth.LeastPrivilege]. Why another policy
// refuses is not known here.
var leastPrivilegeRefusals = map[auth.Action]string{
	auth.ReadKeys:      "Reading API keys needs an API key with the scope account:read.",
	auth.CreateKey:     "An API key can create only keys whose scopes it has itself, and that expire no later than it does.",
	auth.UpdateKey:     "An API key can change only keys whose scopes it has itself, and that expire no later than it does.",
	auth.RotateKey:     "An API key can rotate only keys whose scopes it has itself, and that expire no later than it does.",
	auth.DeleteKey:     "An API key can delete itself, and keys whose scopes it has itself and that expire no later than it does.",
	auth.ReadWebhooks:  "Reading webhooks needs an API key with the scope account:read.",
	auth.CreateWebhook: "A webhook needs an API key with the read scope behind each event: files:read for files.expiring, account:read for all others.",
	auth.UpdateWebhook: "Changing or using a webhook needs an API key with the read scope behind each of its events, before and after: files:read for files.expiring, account:read for all others.",
	auth.DeleteWebhook: "Deleting a webhook needs an API key with the read scope behind each of its events: files:read for files.expiring, account:read for all others.",
}

// fail answers a request that came to nothing.
func (a *api) fail(c *call, err error) {
	for _, f := range failures {
		if errors.Is(err, f.err) {
			auth.WriteError(c.writer, f.status, f.code, f.message)
			return
		}
	}
	var method *methodError
	broken, full := brokenRule(err), limit(err)
	switch {
	case errors.Is(err, apikeys.ErrIdempotencyKeys), errors.Is(err, webhooks.ErrIdempotencyKeys):
		c.writer.Header().Set("Retry-After", "3600") // in a day at the latest there is room
		auth.WriteError(c.writer, http.StatusTooManyRequests, auth.CodeRateLimit,
			"This account has used too many Idempotency-Keys in the last 24 hours. Send the request without one, or try again later.")
	case errors.Is(err, auth.ErrUnauthorized): // meanwhile
		auth.WriteUnauthorized(c.writer)
	case errors.Is(err, auth.ErrForbidden):
		auth.WriteForbidden(c.writer, a.refusal(c))
	case broken != "":
		auth.WriteError(c.writer, http.StatusBadRequest, auth.CodeValidation, broken+".")
	case full != "":
		auth.WriteError(c.writer, http.StatusConflict, auth.CodeConflict, "An account may have at most "+full+". Delete one first.")
	case errors.As(err, &method):
		c.writer.Header().Set("Allow", method.allow)
		auth.WriteError(c.writer, http.StatusMethodNotAllowed, auth.CodeMethodNotAllowed, "This path takes "+method.allow+".")
	default:
		a.logFailure(c, err)
		auth.WriteInternal(c.writer)
	}
}

// brokenRule returns which field of the request is wrong and what would be right, if err
// is of that kind, or else "".
func brokenRule(err error) string {
	var request *requestError
	var key *apikeys.ValidationError
	var webhook *webhooks.ValidationError
	switch {
	case errors.As(err, &request):
		return request.Error()
	case errors.As(err, &key):
		return key.Error()
	case errors.As(err, &webhook):
		return webhook.Error()
	}
	return ""
}

// limit returns what an account may have at most, if err is that it has as many, or else "".
func limit(err error) string {
	var keys *apikeys.LimitError
	var hooks *webhooks.LimitError
	switch {
	case errors.As(err, &keys):
		return fmt.Sprint(keys.Limit, " API keys")
	case errors.As(err, &hooks):
		return fmt.Sprint(hooks.Limit, " webhooks")
	}
	return ""
}

func (a *api) refusal(c *call) string {
	reads := c.route.action == auth.ReadKeys || c.route.action == auth.ReadWebhooks
	if a.refusals != nil && c.caller.Replaced && !reads {
		return replacedRefusal
	}
	if message := a.refusals[c.route.action]; message != "" {
		return message
	}
	return "This API key does not have permission for this action."
}

// logFailure logs the route, not the path: a path can hold anything.
func (a *api) logFailure(c *call, err error) {
	log := a.log.ErrorContext
	if c.Context().Err() != nil {
		log = a.log.DebugContext // the client went away; nothing failed
	}
	log(c.Context(), "storageapi: request failed", "method", c.route.method, "route", c.route.pattern, "error", err)
}
