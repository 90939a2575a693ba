package webhooks

import (
	"errors"
	"fmt"

	"github.com/storageapi/storageapi/internal/input"
)

// ErrNotFound is returned where the account has no webhook of that id; where a delivery,
// event or recovery is asked for, also where there is none of that id. What belongs to
// another account is not found either.
var ErrNotFound = errors.New("no such webhook, event or recovery")

// ErrExists is returned by a [Store] where there is a webhook or recovery of that id, or
// the account has one of the deduplication keys. Ids are random, so that this is next to impossible.
var ErrExists = errors.New("webhook, recovery or deduplication key exists already")

// ErrLimit is returned by [WebhookService.Create], in a [*LimitError], where the account
// has [Config.MaxPerAccount] webhooks.
var ErrLimit = errors.New("too many webhooks")

// ErrShareLimit is returned by [WebhookService.Create], in a [*LimitError], where the account has half
// of the webhooks that it may have, and the API key that asks for one more expires or does not
// hold all scopes: a key that leaked could use up all of them.
var ErrShareLimit = errors.New("too many webhooks for a limited API key")

// ErrIdempotencyKeys is returned by [WebhookService.Create] with an idempotency key where
// the account has used as many of them in the last 24 hours as it may.
var ErrIdempotencyKeys = errors.New("too many idempotency keys in use")

// ErrIdempotencyMismatch is returned by [WebhookService.Create] where the account has used
// the idempotency key before, for other parameters.
var ErrIdempotencyMismatch = errors.New("idempotency key was used for another request")

// ErrCreatedThenDeleted is returned by [WebhookService.Create] where an earlier call with
// the same idempotency key created a webhook that is deleted by now.
var ErrCreatedThenDeleted = errors.New("webhook that this request created was deleted")

// ErrRecovering is returned by [WebhookService.Recover] where a recovery of the webhook is
// not done yet.
var ErrRecovering = errors.New("a recovery of the webhook is under way")

// ErrBodyGone is returned by [WebhookService.Body] where the event is known and its body is not
// kept any more.
var ErrBodyGone = errors.New("the body of the event is not kept any more")

// ErrHeld is returned by [WebhookService.SendTest] where the webhook is on hold, see
// [Webhook.Held]: nothing is sent to it before it is released.
var ErrHeld = errors.New("webhook is on hold")

// A ValidationError says which field of the input is wrong and what would be right. Its
// text is for the person who sent the input, and holds no secret. Use [errors.As].
type ValidationError struct {
	Field  string // as the wire writes it: "url"
	Reason string // what would be right: "must begin with https://"
}

// Error returns the field and the reason.
func (e *ValidationError) Error() string { return e.Field + " " + e.Reason }

// invalid returns a [*ValidationError].
func invalid(field, reason string) error { return &ValidationError{field, reason} }

func checkAccount(account string) error {
	if reason := input.Account(account); reason != "" {
		return invalid("account", reason)
	}
	return nil
}

// A LimitError says how many webhooks an account may have. It wraps [ErrLimit]; or [ErrShareLimit],
// and then says how many it may have for a limited key to create another.
type LimitError struct {
	Limit int
	err   error
}

func (e *LimitError) Error() string {
	if e.err == ErrShareLimit {
		return fmt.Sprintf("%v: API keys without all scopes create webhooks only while the account has fewer than %d", e.err, e.Limit)
	}
	return fmt.Sprintf("%v: an account may have at most %d webhooks", ErrLimit, e.Limit)
}

// Unwrap returns ErrLimit or ErrShareLimit.
func (e *LimitError) Unwrap() error {
	if e.err == nil {
		return ErrLimit
	}
	return e.err
}
