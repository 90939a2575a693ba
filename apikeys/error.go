package apikeys

import (
	"errors"
)

// ErrNotFirst is returned by [KeyService.Create] with [CreateParams.First] if the
// account already has a key, even an expired one.
var ErrNotFirst = errors.New("the account already has an API key")
