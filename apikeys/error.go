package apikeys

import (
	"errors"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/internal/input"
)

// ErrNotFirst is returned by [KeyService.Create] with [CreateParams.First] if the
// account already has a key, even an expired one.
var ErrNotFirst = errors.New("the account has an API key already")

// invalid returns a [*apierr.ValidationError].
func invalid(field, reason string) error {
	return &apierr.ValidationError{Field: field, Reason: reason}
}

func checkAccount(account string) error {
	if reason := input.Account(account); reason != "" {
		return invalid("account", reason)
	}
	return nil
}
