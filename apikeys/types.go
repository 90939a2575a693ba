package apikeys

import "github.com/storageapi/storageapi/store/driver"

// A Key is an API key without its token: its ID, account, name, scopes and expiry, its creator
// and last use, and during a rotation's grace period the previous token's last use and expiry.
// [driver.Key] documents the fields.
type Key = driver.Key
