package apikeys

import (
	"errors"

	"github.com/storageapi/storageapi/internal/input"
)

// ErrNotFound is returned where the account has no key of that id. Of a [Store] also
// [Store.KeyByHash] returns it, where no key has that hash.
var ErrNotFound = errors.New("no such API key")

// ErrExists is returned by a [Store] where a key to be stored has the id of another key
// of its account, or a hash of any other key. Ids and values are random, so that this is
// next to impossible.
var ErrExists = errors.New("API key exists already")

// ErrLimit is returned by [KeyService.Create], in a [*LimitError], where the account has
// [Config.MaxPerAccount] keys.
var ErrLimit = errors.New("too many API keys")

// ErrNotFirst is returned by [KeyService.Create] with [CreateParams.First] where the
// account has a key already, be it dead.
var ErrNotFirst = errors.New("the account has an API key already")

// ErrIdempotencyKeys is returned by [KeyService.Create] with an idempotency key where the
// account has used as many of them in the last 24 hours as it may.
var ErrIdempotencyKeys = errors.New("too many idempotency keys in use")

// ErrIdempotencyMismatch is returned by [KeyService.Create] where the account has used
// the idempotency key before, for other parameters.
var ErrIdempotencyMismatch = errors.New("idempotency key was used for another request")

// ErrCreatedThenDeleted is returned by [KeyService.Create] where an earlier call with the
// same idempotency key created a key that is deleted by now.
var ErrCreatedThenDeleted = errors.New("API key that this request created was deleted")

// A ValidationError says which field of the input is wrong and what would be right. Its
// text is for the person who sent the input, and holds no secret. Use [errors.As].
type ValidationError struct {
	Field  string // as the wire writes it: "expiresAt"
	Reason string // what would be right: "must be in the future"
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
