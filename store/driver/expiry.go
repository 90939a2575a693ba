package driver

import "time"

// An ExpiryQuery selects a page of the expiring keys of all accounts, ordered by ascending
// ExpiresAt, Account and ID.
type ExpiryQuery struct {
	After  Expiry    // the page begins after this position, at which no key need exist
	Before time.Time // only keys with an earlier ExpiresAt
	Limit  int       // page size; at least 1
}

// An Expiry is a position in the list of expiring keys, to the millisecond. A position without
// an account precedes all keys that expire at that time.
type Expiry struct {
	At          time.Time
	Account, ID string
}

// IsZero reports whether e is the zero Expiry.
func (e Expiry) IsZero() bool { return e.At.IsZero() && e.Account == "" && e.ID == "" }

// ExpiryOf returns the position of a key.
func ExpiryOf(key *Key) Expiry { return Expiry{key.ExpiresAt, key.Account, key.ID} }
