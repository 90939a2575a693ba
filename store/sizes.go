package store

import "context"

// A Sizer is the part of a [Store] that counts the records of accounts.
type Sizer interface {
	// AccountSizes returns the sizes of the accounts, in the given order. All counts of an account
	// without data are 0. The counts of one account may be read at different moments, but each
	// includes the changes of every call that returned before AccountSizes was called. A store
	// counts rows on every call: a million keys take about a tenth of a second, and no other call
	// has to wait in the meantime.
	AccountSizes(ctx context.Context, accounts []string) ([]AccountSize, error)
}

// An AccountSize is the number of keys, webhooks and pending deliveries of an account.
type AccountSize struct {
	Account  string `json:"account"`
	Keys     int    `json:"keys"`     // including expired keys
	Webhooks int    `json:"webhooks"` // including inactive webhooks
	Pending  int    `json:"pending"`  // pending deliveries, including those of inactive webhooks
}
