package auth

import "errors"

// ErrErasing is returned by methods that would add data to an account that is being erased: by
// creating a key or a webhook, publishing, or reporting. The call has had no effect. Once the
// erasure is complete, the account can be used again like a new one. To continue an interrupted
// erasure, call storageapi.Handler.Erase again.
var ErrErasing = errors.New("the account is being erased")
