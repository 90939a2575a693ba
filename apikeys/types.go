package apikeys

import "github.com/storageapi/storageapi/store/driver"

// A Key is an API key without its token. It holds the key's ID, account, name, scopes, expiry and
// limits, its creator and last use, and during a rotation's grace period the last use and expiry of
// the previous token. [driver.Key] documents the fields.
type Key = driver.Key

// A ScopeUse is a scope that a key has used: see [driver.Key.ScopesUsed].
type ScopeUse = driver.ScopeUse

// A NetworkUse is a network that a key was used from: see [driver.Key.NetworksUsed].
type NetworkUse = driver.NetworkUse
