package store

import "context"

// An Eraser is the part of a [Store] that removes whole accounts.
type Eraser interface {
	// EraseAccount removes the account's data in steps. Each call takes one step, which removes
	// about limit records, and reports whether more remain. erased counts the records removed by
	// all steps so far, including those before a restart. For an account without data, EraseAccount
	// returns the zero Receipt and more = false.
	//
	// The first step closes the account: no method finds its keys, Load returns none of its
	// deliveries as Ready, results of its running attempts are stale, and methods that would add
	// data to it return [auth.ErrErasing]. Other methods find less data with each step. The account
	// stays closed, even after a restart, until a call returns more = false. From then on no method
	// finds data of the account, and the account may be used again like a new one.
	//
	// An erasure also removes data that was published before the first step and is committed later,
	// for example by an open transaction of the host. Until that transaction has ended, more is
	// true.
	//
	// Several calls for one account may run concurrently, even in several processes; they all
	// advance the same erasure. Other methods wait for at most one step. After a call that fails or
	// is interrupted, call EraseAccount again: the erasure resumes where it stopped. If the last
	// step was committed but its result was lost, the repeated call returns the zero Receipt.
	EraseAccount(ctx context.Context, account string, limit int) (erased Receipt, more bool, err error)
}

// A Receipt counts the records that an erasure has removed, by kind.
type Receipt struct {
	Keys            int `json:"keys"`       // removed with their previous values and last uses
	Webhooks        int `json:"webhooks"`   // removed with their secrets; webhooks deleted earlier are not counted
	Events          int `json:"events"`     // removed with their bodies, unless these were already purged
	Deliveries      int `json:"deliveries"` // pending or settled; removed with their attempts
	Recoveries      int `json:"recoveries"`
	Alerts          int `json:"alerts"`          // states of alerts, one per series
	DedupKeys       int `json:"dedupKeys"`       // deduplication keys of published alerts
	IdempotencyKeys int `json:"idempotencyKeys"` // including expired idempotency keys that are still stored
	AuditEntries    int `json:"auditEntries"`    // including entries that are still pending
}

// IsZero reports whether nothing was removed.
func (r Receipt) IsZero() bool { return r == Receipt{} }
