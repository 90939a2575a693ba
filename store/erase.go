package store

import "context"

// An Eraser is the part of a [Store] that removes whole accounts.
type Eraser interface {
	// EraseAccount removes the account's data in steps. Each call takes one step, which removes
	// about limit records, and reports whether more remain. erased counts the records removed by
	// all steps so far, including those before a restart. For an account without data, EraseAccount
	// returns the zero Receipt and false.
	//
	// The first step closes the account: its keys are no longer found, nothing is claimed for it,
	// settlements of claimed deliveries are stale, and methods that would add data to it return
	// [auth.ErrErasing]. Other methods find less with each step. The account stays closed, also
	// across restarts, until a call returns more = false. From then on no method finds data of the
	// account, and it may be used again like a new one.
	//
	// An erasure also removes data that was published before the first step and is committed later,
	// for example by an open transaction of the host. More data remains until that transaction has
	// ended.
	//
	// Calls for one account may run concurrently, also in several processes: all of them advance
	// the same erasure. Other calls wait for at most one step. Repeat a call that fails or is cut
	// short: the erasure resumes where it stopped. If the last step was committed but its result
	// was lost, the repeated call returns the zero Receipt.
	EraseAccount(ctx context.Context, account string, limit int) (erased Receipt, more bool, err error)
}

// A Receipt counts what an erasure has removed, by kind.
type Receipt struct {
	Keys            int // including their previous values and last uses
	Webhooks        int // including their secrets; webhooks deleted earlier are not counted
	Events          int // including their bodies, unless already purged
	Deliveries      int // pending or settled, including their attempts
	Recoveries      int
	Alerts          int // report states, one per metric
	DedupKeys       int // deduplication keys of published alerts
	IdempotencyKeys int // of creations, including expired keys that are still stored
	AuditEntries    int // pending or delivered
}

// IsZero reports whether nothing was removed.
func (r Receipt) IsZero() bool { return r == Receipt{} }
