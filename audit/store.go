package audit

import (
	"context"
	"slices"
	"time"
)

// A Store is the part of a backend that keeps audit entries. The comments of its methods,
// together with the general rules in package store, are the contract. Package storetest tests a
// store.
//
// An entry belongs to a change. Methods that create, change or delete something take the entry,
// or let a callback set it, and store it in the same transaction. An entry without an ID is not
// stored. A call that changes nothing, because of an error or by the method's contract, stores no
// entry. An account has no two entries with the same ID.
//
// For each account a store keeps the last [MaxRoutine] entries that are [Entry.Routine]. It removes
// older routine entries by the time 1,000 more are stored. Removed entries are not delivered, even
// if they were pending. Paging continues from a position even if the entry there was removed.
//
// When a store stores an entry, it gives it a number above 0. Of two entries of one target, the
// entry committed later has the greater number.
type Store interface {
	// AddAuditEntries stores entries that belong to no other change. It skips an entry if the
	// target already has an entry with the same ID. It also skips a KeyExpiring entry if the key no
	// longer exists or the entry does not announce its ExpiresAt, see [Entry.Announces]. It returns
	// the number of stored entries. A call stores all of them or none.
	AddAuditEntries(ctx context.Context, list []Entry) (added int, err error)

	// ListAuditEntries returns a page of the account's entries by descending number. On any node,
	// the entries of a target are in the order of its changes. A store examines a bounded number of
	// entries for each page, so a page may hold fewer than query.Limit although it has a Next. If
	// query.Target has an ID, only that target's entries are examined.
	ListAuditEntries(ctx context.Context, account string, query Query) (Page, error)

	// PendingAccounts returns at most limit accounts with pending entries, in ascending byte order.
	// It begins with the first account that sorts higher than after. It never returns the empty
	// account. It reads at most one entry of each account.
	PendingAccounts(ctx context.Context, after string, limit int) ([]string, error)

	// PendingAuditEntries returns at most limit pending entries of the account, by ascending
	// number. Its run time must not depend on the number of entries pending in other accounts. The
	// account may be empty.
	PendingAuditEntries(ctx context.Context, account string, limit int) ([]Numbered, error)

	// TakeAuditEntries marks the entries with these numbers as no longer pending. Unknown numbers
	// are skipped.
	TakeAuditEntries(ctx context.Context, numbers []uint64) error

	// LeaseAudit requests or extends the delivery lease for holder, until ttl from now by the
	// store's clock. All users of the store share one lease. LeaseAudit returns false if another
	// holder has the lease. A ttl of 0 releases it. The lease need not survive a restart if only one
	// process uses the store.
	LeaseAudit(ctx context.Context, holder string, ttl time.Duration) (held bool, err error)
}

// A Numbered is an entry with the number that the store gave it.
type Numbered struct {
	Number uint64
	Entry  Entry
}

// A Query selects entries of an account. The zero Query selects all.
type Query struct {
	Target  Target    // only this target, or only this kind if it has no ID; zero means any
	Actions []Action  // only these; empty means any
	Since   time.Time // earliest At; zero means no limit
	Until   time.Time // At must be earlier; zero means no limit

	// After is the [Page.Next] of the previous page, of the same account and Target. If empty, start
	// with the newest.
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

	// Next is the [Query.After] of the next page; empty if there is none. It may be shown to
	// clients, since it reveals nothing about other accounts.
	Next string
}
