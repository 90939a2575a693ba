package audit

import (
	"context"
	"slices"
	"time"
)

// A Store is the part of a backend that keeps audit entries. The comments of its methods are the
// contract, together with the general rules in package store. Package storetest tests a store.
//
// An entry comes with its change: methods that create, change or delete take the entry or let a
// callback set it, and store it in the same step. An entry without an ID is not stored. A step that
// changes nothing, because of an error or by the method's contract, stores no entry. An account has
// no two entries with the same ID.
//
// For each account a store keeps the last [MaxRoutine] entries that are [Entry.Routine]. It removes
// older ones within the next 1,000, even if they are pending; these are not delivered. Paging
// continues from a position even if the entry there was removed.
//
// A store gives each entry a number above 0 when it stores it: of two entries of one target the
// entry committed later has the greater number.
type Store interface {
	// AddAuditEntries stores entries that belong to no other change. It skips an entry if its
	// target already has an entry with that ID, and a KeyExpiring entry whose key no longer exists
	// or does not expire at Until. It returns the number of stored entries. A call stores all of
	// them or none.
	AddAuditEntries(ctx context.Context, list []Entry) (added int, err error)

	// ListAuditEntries returns a page of the account's entries by descending number: entries of a
	// target are in the order of its changes, on any node. A page may hold fewer than query.Limit
	// and have a Next nevertheless, since a store examines a bounded number of entries for each
	// page. If query.Target has an ID, only that target's entries are examined.
	ListAuditEntries(ctx context.Context, account string, query Query) (Page, error)

	// PendingAccounts returns at most limit accounts with pending entries, in ascending order of
	// bytes, beginning after the given account. It never returns the empty account. It reads at
	// most one entry of each account.
	PendingAccounts(ctx context.Context, after string, limit int) ([]string, error)

	// PendingAuditEntries returns at most limit pending entries of the account, by ascending
	// number. Its run time must not depend on the number of entries pending in other accounts. The
	// account may be empty.
	PendingAuditEntries(ctx context.Context, account string, limit int) ([]Numbered, error)

	// TakeAuditEntries marks the entries with these numbers as no longer pending. Unknown numbers
	// are skipped.
	TakeAuditEntries(ctx context.Context, numbers []uint64) error

	// LeaseAudit requests the delivery lease for the holder. All users of the store share one
	// lease. It returns false if another holder has it; otherwise the holder has it until ttl from
	// now, by the store's clock. The current holder extends its lease this way; a ttl of 0 releases
	// it. The lease need not survive a restart of a store that one process uses.
	LeaseAudit(ctx context.Context, holder string, ttl time.Duration) (held bool, err error)
}

// A Numbered is an entry with the number that the store gave it.
type Numbered struct {
	Number uint64
	Entry  Entry
}

// A Query selects entries of an account. The zero Query selects all.
type Query struct {
	Target  Target    // only this target; without an ID: only this kind; zero: any
	Actions []Action  // only these; empty: any
	Since   time.Time // earliest At; zero: no limit
	Until   time.Time // At must be earlier; zero: no limit

	// The [Page.Next] of the previous page, of the same account and Target; empty: start with the
	// newest.
	After string
	Limit int // at least 1
}

// Matches reports whether the query selects the entry, ignoring After and Limit.
func (q *Query) Matches(n *Entry) bool {
	if q.Target.Kind != "" && (n.Target.Kind != q.Target.Kind || q.Target.ID != "" && n.Target.ID != q.Target.ID) {
		return false
	}
	if !q.Since.IsZero() && n.At.Before(q.Since) || !q.Until.IsZero() && !n.At.Before(q.Until) {
		return false
	}
	return len(q.Actions) == 0 || slices.Contains(q.Actions, n.Action)
}

// A Page is a page of an account's entries.
type Page struct {
	Entries []Entry

	// Next is the After of the next page, empty if there is none. It may be shown to clients, since
	// it reveals nothing about other accounts.
	Next string
}
