package webhooks

import (
	"errors"
	"fmt"

	"github.com/storageapi/storageapi/internal/input"
)

// ErrNotFound is returned if the account has no webhook, delivery, event or recovery with that ID.
// Objects of other accounts are not found either.
var ErrNotFound = errors.New("no such webhook, event or recovery")

// ErrExists is returned by a [Store] if a webhook or recovery has that ID, or the account has one
// of the deduplication keys. IDs are random, so an ID collision is nearly impossible.
var ErrExists = errors.New("webhook, recovery or deduplication key exists already")

// ErrLimit is returned by [WebhookService.Create], in a [*LimitError], if the account has
// [Config.MaxPerAccount] webhooks, or half of that for a limited API key.
var ErrLimit = errors.New("too many webhooks")

// ErrIdempotencyKeys is returned by [WebhookService.Create] if the account has used too many
// idempotency keys in the last 24 hours.
var ErrIdempotencyKeys = errors.New("too many idempotency keys in use")

// ErrIdempotencyMismatch is returned by [WebhookService.Create] if the account has used the
// idempotency key before, with other parameters.
var ErrIdempotencyMismatch = errors.New("idempotency key was used for another request")

// ErrCreatedThenDeleted is returned by [WebhookService.Create] if an earlier call with the same
// idempotency key created a webhook that has since been deleted.
var ErrCreatedThenDeleted = errors.New("webhook that this request created was deleted")

// ErrRecovering is returned by [WebhookService.Recover] if another recovery of the webhook is not
// done.
var ErrRecovering = errors.New("a recovery of the webhook is under way")

// ErrBodyGone is returned by [WebhookService.Body] if the event exists but its body is no longer
// kept.
var ErrBodyGone = errors.New("the body of the event is not kept any more")

// ErrHeld is returned by [WebhookService.SendTest] if the webhook is on hold, see [Webhook.Held].
// It must be released first.
var ErrHeld = errors.New("webhook is on hold")

// A ValidationError reports an invalid input field and the rule that it breaks. Its text is for the
// person who sent the input, and holds no secret. Use [errors.As].
type ValidationError struct {
	Field  string // as in the HTTP API: "url"
	Reason string // the rule: "must begin with https://"
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

// A LimitError reports that the account has too many webhooks for the caller to create another. It
// wraps [ErrLimit].
type LimitError struct {
	// Limit is the number of webhooks up to which the caller may create: [Config.MaxPerAccount],
	// or half of it if Limited.
	Limit int

	// Limited is [auth.Credential.Limited] of the caller.
	Limited bool
}

func (e *LimitError) Error() string {
	if e.Limited {
		return fmt.Sprintf("%v: an API key that expires or does not hold all scopes can create webhooks only while the account has fewer than %d", ErrLimit, e.Limit)
	}
	return fmt.Sprintf("%v: an account may have at most %d webhooks", ErrLimit, e.Limit)
}

// Unwrap returns ErrLimit.
func (e *LimitError) Unwrap() error { return ErrLimit }
