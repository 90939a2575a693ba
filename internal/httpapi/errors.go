package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// Errors that are detected before a service is called.
var (
	errNoRoute   = errors.New("no route")
	errMediaType = errors.New("media type is not JSON")
	errTooLarge  = errors.New("body is too large")
)

// Errors that replace [apierr.ErrNotFound] to say what is missing.
var (
	errNoDelivery = errors.New("no such delivery")
	errNoEvent    = errors.New("no such event")
	errNoPayload  = errors.New("the delivery's event is gone")
	errNoRecovery = errors.New("no such recovery")
)

// errPrecondition means that no entity tag in If-Match matches.
var errPrecondition = errors.New("precondition failed")

// invalid returns the validation error for an invalid part of a request.
func invalid(field, reason string) error { return input.Invalid(field, reason) }

// alsoInvalid joins the validation errors in err with wrong, the result of [call.bind]. It ignores
// other errors in err unless wrong is nil.
func alsoInvalid(wrong, err error) error {
	switch {
	case wrong == nil:
		return err
	case len(input.InvalidFields(err)) == 0:
		return wrong
	}
	return input.JoinInvalid(wrong, err)
}

// A methodError means that the path exists but does not support the method.
type methodError struct{ allow string }

func (*methodError) Error() string { return "no such method here" }

// failures maps sentinel errors to responses; [api.fail] handles other types of errors.
// "{resource}" stands for the kind of resource of the route. The messages depend on nothing else in
// the request, so that clients cannot learn whether a resource exists in another account.
var failures = []struct {
	err     error
	status  int
	code    string
	message string
}{
	{errNoRoute, http.StatusNotFound, auth.CodeNotFound, "There is nothing at this path."},
	{errMediaType, http.StatusUnsupportedMediaType, auth.CodeUnsupportedMediaType, "Send the body as JSON with Content-Type: application/json and no Content-Encoding."},
	{errTooLarge, http.StatusRequestEntityTooLarge, auth.CodePayloadTooLarge, "The body must be at most 65536 bytes."},
	{errPrecondition, http.StatusPreconditionFailed, auth.CodePreconditionFailed, "The resource has changed: If-Match does not match its ETag. Fetch it again and retry."},
	{auth.ErrCredentialChanged, http.StatusConflict, auth.CodeConflict, "This API key is being changed right now. Retry the request."},
	{auth.ErrErasing, http.StatusConflict, auth.CodeConflict, "This account is being erased. Nothing can be added to it."},
	{apierr.ErrNotFound, http.StatusNotFound, auth.CodeNotFound, "There is no {resource} with this id."},
	{apierr.ErrExists, http.StatusConflict, auth.CodeConflict, "This {resource} already exists. Retry the request."},
	{apierr.ErrIdempotencyMismatch, http.StatusConflict, auth.CodeConflict, "This Idempotency-Key was already used with a different body. Use a new one for each new request."},
	{apierr.ErrIdempotencyKeys, http.StatusTooManyRequests, auth.CodeRateLimit, "This account has used too many Idempotency-Keys in the last 24 hours. Send the request without one, or retry later."},
	{apierr.ErrCreatedThenDeleted, http.StatusConflict, auth.CodeConflict, "The {resource} created with this Idempotency-Key has been deleted. Use a new Idempotency-Key to create another."},
	{webhooks.ErrRecovering, http.StatusConflict, auth.CodeConflict, "A recovery of this webhook is already running. Retry when it is done."},
	{webhooks.ErrTesting, http.StatusConflict, auth.CodeConflict, "A test of this webhook is already running, or too many of the account are. Retry in a few seconds."},
	{webhooks.ErrHeld, http.StatusConflict, auth.CodeConflict, "This webhook is on hold after a restore of the service. Retry once the service has released it."},
	{webhooks.ErrBodyGone, http.StatusNotFound, auth.CodeNotFound, "The body of this event is not stored. Bodies are stored until bodyKeptUntil, and only of events that a webhook was subscribed to."},
	{errNoEvent, http.StatusNotFound, auth.CodeNotFound, "There is no event with this id."},
	{errNoDelivery, http.StatusNotFound, auth.CodeNotFound, "This webhook has no delivery of an event with this id."},
	{errNoPayload, http.StatusConflict, auth.CodeConflict, "This event is no longer stored and cannot be sent again."},
	{errNoRecovery, http.StatusNotFound, auth.CodeNotFound, "This webhook has no recovery with this id."},
}

// replacedRefusal is the 403 message if the request carries a value that a rotation has replaced.
const replacedRefusal = "This value of the API key was replaced by a rotation. It can delete its own key, but manage nothing else. Use the new value."

// leastPrivilegeRefusals returns the 403 messages for [auth.LeastPrivilege]; the rules of other
// policies are unknown here. behind is the result of [readScopes].
func leastPrivilegeRefusals(behind string) map[auth.Action]string {
	return map[auth.Action]string{
		auth.ReadKeys:      "Reading API keys requires the scope account:read.",
		auth.CreateKey:     "An API key can create only keys whose scopes it holds, that expire no later than it does, and that are limited to its networks and its rate limit, if it has any.",
		auth.UpdateKey:     "An API key can change only keys whose scopes it holds, that expire no later than it does, and that are limited to its networks and its rate limit, if it has any, before and after the change.",
		auth.RotateKey:     "An API key can rotate only keys whose scopes it holds, that expire no later than it does, and that are limited to its networks and its rate limit, if it has any.",
		auth.DeleteKey:     "An API key can delete itself, and keys whose scopes it holds, that expire no later than it does, and that are limited to its networks and its rate limit, if it has any.",
		auth.ReadWebhooks:  "Reading webhooks requires the scope account:read.",
		auth.ReadAudit:     "Reading the audit log requires the scope account:read.",
		auth.ReadEvents:    "Reading events requires the read scope behind their types: " + behind + ".",
		auth.CreateWebhook: "Creating a webhook requires the read scope behind each of its events: " + behind + ".",
		auth.UpdateWebhook: "Changing or using a webhook requires the read scope behind each of its events, before and after the change: " + behind + ".",
		auth.DeleteWebhook: "Deleting a webhook requires the read scope behind each of its events: " + behind + ".",
	}
}

// readScopes returns a text that lists the scope required by each event type.
func readScopes(service *webhooks.WebhookService) string {
	var text strings.Builder
	for _, t := range service.EventTypes() {
		if set := service.ReadScopes([]webhooks.EventType{t}); !set.Has(scopes.AccountRead) {
			fmt.Fprintf(&text, "%s for %s, ", set, t)
		}
	}
	return text.String() + "account:read for all others"
}

// fail writes the response for err.
func (a *api) fail(c *call, err error) {
	for _, f := range failures {
		if errors.Is(err, f.err) {
			if f.status == http.StatusTooManyRequests {
				c.writer.Header().Set("Retry-After", "3600") // idempotency keys expire within a day
			}
			auth.WriteError(c.writer, f.status, f.code, strings.Replace(f.message, "{resource}", c.resource(), 1))
			return
		}
	}
	var method *methodError
	var outside *auth.ResourceError
	wrong, full := input.InvalidFields(err), limit(err)
	switch {
	case errors.Is(err, auth.ErrUnauthorized): // the key was deleted or expired during the request
		a.guard.WriteUnauthorized(c.writer)
	case errors.As(err, &outside):
		auth.NoteForbidden(c.Context())
		a.guard.WriteOutside(c.writer, outside.Required...)
	case errors.Is(err, auth.ErrForbidden):
		var required scopes.Set
		if missing, ok := errors.AsType[*auth.ScopeError](err); ok {
			required = missing.Required
		}
		held := func(name string) bool { return c.caller.Scopes.Has(scopes.Scope(name)) }
		auth.NoteForbidden(c.Context(), slices.DeleteFunc(required.Names(), held)...)
		a.guard.WriteForbidden(c.writer, a.refusal(c), required)
	case len(wrong) > 0:
		auth.WriteInvalidFields(c.writer, wrong...)
	case full != "":
		auth.WriteError(c.writer, http.StatusConflict, auth.CodeConflict, full)
	case errors.As(err, &method):
		c.writer.Header().Set("Allow", method.allow)
		auth.WriteError(c.writer, http.StatusMethodNotAllowed, auth.CodeMethodNotAllowed, "This path supports "+method.allow+".")
	default:
		a.logFailure(c, err)
		auth.WriteFailure(c.writer, err)
	}
}

// resource returns the route's kind of resource, for error messages.
func (c *call) resource() string {
	if c.route != nil {
		switch c.route.action {
		case auth.ReadKeys, auth.CreateKey, auth.UpdateKey, auth.RotateKey, auth.DeleteKey:
			return "API key"
		}
	}
	return "webhook"
}

// limit returns the message for an [apierr.LimitError], or "" if err is another error.
func limit(err error) string {
	full, ok := errors.AsType[*apierr.LimitError](err)
	switch {
	case !ok:
		return ""
	case full.Limited:
		return fmt.Sprintf("A key that expires, lacks a scope or has another limit can create %s only while the account has fewer than %d. Delete one, or use a key without these limits.", full.Resource, full.Limit)
	}
	return fmt.Sprintf("An account can have at most %d %s. Delete one first.", full.Limit, full.Resource)
}

func (a *api) refusal(c *call) string {
	reads := c.route.method == http.MethodGet
	if a.refusals != nil && c.caller.Replaced && !reads {
		return replacedRefusal
	}
	if message := a.refusals[c.route.action]; message != "" {
		return message
	}
	return "This API key does not have permission for this action."
}

// logFailure logs the route instead of the path, because a path can contain arbitrary text.
func (a *api) logFailure(c *call, err error) {
	log := a.log.ErrorContext
	if c.Context().Err() != nil {
		log = a.log.DebugContext // the client disconnected; nothing failed
	}
	log(c.Context(), "storageapi: request failed", "method", c.route.method, "route", c.route.pattern, "error", err)
}
