package auth

import "errors"

// ErrErasing is returned by what would add something to an account that is being erased:
// creating a key or a webhook, publishing or reporting. Nothing has happened. The account can
// be used again, as one that never was, once the erasure is complete; one that was cut short
// goes on when it is asked for again.
var ErrErasing = errors.New("the account is being erased")
