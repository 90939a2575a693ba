package store

import "context"

// A Sizer is the part of a [Store] that counts what accounts have.
type Sizer interface {
	// AccountSizes returns the sizes of the accounts, in the order in which they are given;
	// one that has nothing has zeros. An account's numbers may be of moments apart, and each
	// sees what every call that had returned did. A store counts its rows at each call: a
	// million keys take a tenth of a second or so, during which nothing waits for it.
	AccountSizes(ctx context.Context, accounts []string) ([]AccountSize, error)
}

// An AccountSize says how much an account has.
type AccountSize struct {
	Account  string
	Keys     int // expired ones included
	Webhooks int // inactive ones included
	Pending  int // deliveries, those of inactive webhooks included
}
