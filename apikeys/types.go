package apikeys

import "github.com/storageapi/storageapi/store/driver"

// A Key is an API key without its token: its ID, account, name, scopes and expiry, who created it,
// when it was last used, and during a rotation's grace period the same for its previous token.
// [driver.Key] documents the fields.
type Key = driver.Key
