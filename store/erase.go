package store

import "context"

// An Eraser is the part of a [Store] that removes whole accounts.
type Eraser interface {
	// EraseAccount removes what the store keeps of the account, in steps: a call takes one,
	// of about limit records, and tells whether there is more to remove. erased counts what
	// the steps so far have removed, also those before a restart. Of an account that the store has
	// nothing of there is nothing to erase: the zero Receipt, and no more.
	//
	// The first step closes the account. From then on no key of it is found, nothing is claimed
	// for it, settlements of what was claimed are stale, and methods that would add something
	// to it return [auth.ErrErasing]; other methods find less and less. That lasts, also
	// beyond a restart, until a call has returned that there is no more. Then no method
	// finds anything of the account, and it may be used as one that never was.
	//
	// What was published before the first step and is committed later, as by a transaction of the
	// host that is open, is removed as well: until it has ended there is more.
	//
	// Calls for one account may run at the same time, also in several processes: each takes
	// steps of the same erasure. No other call waits for longer than a step. A call that fails or is cut short
	// is repeated: the erasure goes on where it was. If the last step was done but its
	// answer was lost, the repeated call returns the zero Receipt.
	EraseAccount(ctx context.Context, account string, limit int) (erased Receipt, more bool, err error)
}

// A Receipt counts what an erasure has removed, by kind.
type Receipt struct {
	Keys            int // with their previous values and last uses
	Webhooks        int // with their secrets; those deleted before are not counted
	Events          int // with their bodies, as far as those were kept
	Deliveries      int // pending or settled, with their attempts
	Recoveries      int
	Alerts          int // what is remembered of reports, one for each metric
	DedupKeys       int // of alerts that were published
	IdempotencyKeys int // of creations, also those that ran out and were not removed yet
	Notices         int // what was told, or waits to be told, of the account
}

// IsZero reports whether nothing was removed.
func (r Receipt) IsZero() bool { return r == Receipt{} }
