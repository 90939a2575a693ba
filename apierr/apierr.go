// Package apierr defines the errors that the key service and the webhook service have in common.
// Methods wrap them: use [errors.Is] and [errors.As].
//
//	key, err := api.Keys.Get(ctx, account, keyID)
//	if errors.Is(err, apierr.ErrNotFound) {
//		// the account has no key with this ID
//	}
//
// Errors that belong to only one service are in its package. Errors about the caller's credential
// are in package auth.
package apierr

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotFound means that the account has no key, webhook, event, delivery or recovery with the
// given ID, or that no key has the given hash. Objects in other accounts count as not found.
var ErrNotFound = errors.New("not found")

// ErrExists is returned by a store if something that must be unique is already in use: the ID of a
// new key, webhook or recovery, the hash of a new key, or the deduplication key of a new event. IDs
// and tokens are random, so in practice only imported keys collide.
var ErrExists = errors.New("exists already")

// ErrLimit means that the account has the maximum number of keys or webhooks. The services return
// it in a [*LimitError].
var ErrLimit = errors.New("limit reached")

// ErrIdempotencyKeys is returned by a creation with an idempotency key if the account has already
// used the maximum number of idempotency keys in the last 24 hours.
var ErrIdempotencyKeys = errors.New("too many idempotency keys in use")

// ErrIdempotencyMismatch is returned by a creation if the account has already used the idempotency
// key with other parameters.
var ErrIdempotencyMismatch = errors.New("idempotency key was used for another request")

// ErrCreatedThenDeleted is returned by a creation if an earlier call with the same idempotency key
// created a key or webhook that has since been deleted.
var ErrCreatedThenDeleted = errors.New("the object created with this idempotency key has been deleted")

// A ValidationError names an invalid input field and states the rule that it breaks. Its text is
// meant for the person who sent the input and contains no secret.
type ValidationError struct {
	Field  string // the JSON name, such as "expiresAt"
	Reason string // the rule, such as "must be in the future"
}

// Error returns the field and the reason.
func (e *ValidationError) Error() string { return e.Field + " " + e.Reason }

// ValidationErrors are the errors of an input with several invalid fields, in the order in which they
// were found. [errors.As] finds the first of them as a [*ValidationError].
type ValidationErrors []*ValidationError

// Error joins the texts of the errors.
func (e ValidationErrors) Error() string {
	texts := make([]string, len(e))
	for i, wrong := range e {
		texts[i] = wrong.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors.
func (e ValidationErrors) Unwrap() []error {
	list := make([]error, len(e))
	for i, wrong := range e {
		list[i] = wrong
	}
	return list
}

// A LimitError means that the account has too many keys or webhooks for this caller to create
// another. It wraps [ErrLimit].
type LimitError struct {
	Resource string // "API keys" or "webhooks"

	// Limit is the number of keys or webhooks at which this caller can create no more. It is
	// MaxPerAccount in the service's Config, or half of that if Limited is true.
	Limit int

	// Limited is the value of auth.Credential.Limited for the caller.
	Limited bool
}

func (e *LimitError) Error() string {
	if e.Limited {
		return fmt.Sprintf("%v: an API key that expires, lacks a scope or has another limit can create %s only while the account has fewer than %d", ErrLimit, e.Resource, e.Limit)
	}
	return fmt.Sprintf("%v: an account may have at most %d %s", ErrLimit, e.Limit, e.Resource)
}

// Unwrap returns ErrLimit.
func (e *LimitError) Unwrap() error { return ErrLimit }
