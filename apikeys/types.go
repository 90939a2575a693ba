package apikeys

import "github.com/storageapi/storageapi/store/driver"

// A Key is an API key without its token. It holds the key's ID, account, name, scopes and expiry,
// its creator and last use, and during a rotation's grace period the last use and expiry of the
// previous token. [driver.Key] documents the fields.
type Key = driver.Key
