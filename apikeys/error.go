package apikeys

import (
	"errors"
	"fmt"

	"github.com/storageapi/storageapi/internal/input"
)

// ErrNotFound is returned if the account has no key with the given ID, and by
// [Store.KeyByHash] if no key has the hash.
var ErrNotFound = errors.New("no such API key")

// ErrExists is returned by a [Store] if the new key has the ID of another key in its
// account, or a hash of any other key. IDs and values of new keys are random, so only
// imported keys collide in practice.
var ErrExists = errors.New("API key exists already")

// ErrLimit is returned by [KeyService.Create], in a [*LimitError], if the account has
// [Config.MaxPerAccount] keys, or half of that for a limited API key.
var ErrLimit = errors.New("too many API keys")

// ErrNotFirst is returned by [KeyService.Create] with [CreateParams.First] if the
// account already has a key, even an expired one.
var ErrNotFirst = errors.New("the account has an API key already")

// ErrIdempotencyKeys is returned by [KeyService.Create] with an idempotency key if the
// account has used the maximum number of idempotency keys in the last 24 hours.
var ErrIdempotencyKeys = errors.New("too many idempotency keys in use")

// ErrIdempotencyMismatch is returned by [KeyService.Create] if the account has used
// the idempotency key before, with other parameters.
var ErrIdempotencyMismatch = errors.New("idempotency key was used for another request")

// ErrCreatedThenDeleted is returned by [KeyService.Create] if an earlier call with the
// same idempotency key created a key that has since been deleted.
var ErrCreatedThenDeleted = errors.New("API key that this request created was deleted")

// A ValidationError names an invalid input field and gives the rule for it. Its text is for
// the person who sent the input, and contains no secret. Use [errors.As].
type ValidationError struct {
	Field  string // the JSON name, such as "expiresAt"
	Reason string // the rule, such as "must be in the future"
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

// A LimitError reports that the account has too many keys for the caller to create another. It
// wraps [ErrLimit].
type LimitError struct {
	// Limit is the number of keys up to which the caller may create: [Config.MaxPerAccount], or
	// half of it if Limited.
	Limit int

	// Limited is [auth.Credential.Limited] of the caller.
	Limited bool
}

func (e *LimitError) Error() string {
	if e.Limited {
		return fmt.Sprintf("%v: an API key that expires or does not hold all scopes can create keys only while the account has fewer than %d", ErrLimit, e.Limit)
	}
	return fmt.Sprintf("%v: an account may have at most %d API keys", ErrLimit, e.Limit)
}

// Unwrap returns ErrLimit.
func (e *LimitError) Unwrap() error { return ErrLimit }
