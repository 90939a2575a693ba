package notices

import (
	"context"
	"slices"
	"time"
)

// A Store is the part of a backend that keeps notices. The comments of its methods are the
// contract, together with what package store says once of every method. Package storetest
// proves a store.
//
// Notices come with the changes that they tell of: methods that create, change or delete
// take the notice or let a callback set it, and store it in the same step. One without an
// ID is none. A step that changes nothing, because of an error or by the method's own
// words, stores no notice. An id is given to one notice of an account.
//
// Of each account a store keeps the last [MaxRoutine] notices that are [Notice.Routine], and
// removes older ones within the next 1,000, pending or not: then the host is not told of them.
// A page goes on where it was even if the notice there was removed.
//
// A store gives each notice a number, above 0, when it stores it: of two notices of one target
// the one that was committed later has the greater number.
type Store interface {
	// AddNotices stores notices that go with no other change, except those whose target
	// has a notice of that id already, and those of KeyExpiring whose key is not there any
	// more or does not expire at their Until. It returns how many those are that it stored.
	// Of one call all are stored or none is.
	AddNotices(ctx context.Context, list []Notice) (added int, err error)

	// ListNotices returns a part of the account's notices by descending number: those of a
	// target are in the order of its changes, on whatever node these were made. A page may
	// hold fewer than query.Limit and have a Next nevertheless: a store looks at a bounded
	// number of notices for each. With a Target that has an ID it looks at no others.
	ListNotices(ctx context.Context, account string, query Query) (Page, error)

	// PendingAccounts returns accounts that have pending notices, at most limit, in ascending
	// order of bytes, those after the given one. The empty account is never among them. It
	// reads no more than one notice of each account.
	PendingAccounts(ctx context.Context, after string, limit int) ([]string, error)

	// PendingNotices returns the account's pending notices with the lowest numbers, at most
	// limit, by ascending number. How many are pending in other accounts does not matter to
	// how long it takes. The account may be empty.
	PendingNotices(ctx context.Context, account string, limit int) ([]Numbered, error)

	// TakeNotices ends that the notices of these numbers are pending. Numbers of others are
	// passed over.
	TakeNotices(ctx context.Context, numbers []uint64) error

	// LeaseNotices gives the holder the lease for telling of notices, which is one for all
	// who share the store, until ttl from now by the store's clock, and returns true; or
	// false if another holder has it. A holder that has it already prolongs it; a ttl of 0
	// ends it. It need not survive a restart of a store that one process uses.
	LeaseNotices(ctx context.Context, holder string, ttl time.Duration) (held bool, err error)
}

// A Numbered is a notice with the number that the store gave it.
type Numbered struct {
	Number uint64
	Notice Notice
}

// A Query says which notices of an account to list. Its zero value asks for all.
type Query struct {
	Target  Target    // of this target; without an ID: of this kind; zero: of any
	Actions []Action  // one of these; empty: any
	Since   time.Time // At is this or later; zero: since ever
	Until   time.Time // At is before; zero: until now

	After string // the [Page.Next] of the page before, of the same account and Target; empty: from the newest
	Limit int    // at least 1
}

// Matches reports whether the query asks for the notice, its place apart.
func (q *Query) Matches(n *Notice) bool {
	if q.Target.Kind != "" && (n.Target.Kind != q.Target.Kind || q.Target.ID != "" && n.Target.ID != q.Target.ID) {
		return false
	}
	if !q.Since.IsZero() && n.At.Before(q.Since) || !q.Until.IsZero() && !n.At.Before(q.Until) {
		return false
	}
	return len(q.Actions) == 0 || slices.Contains(q.Actions, n.Action)
}

// A Page is a part of an account's notices.
type Page struct {
	Notices []Notice

	// Next is the After of the next page; empty if there is none. It may be shown to clients:
	// it says nothing of other accounts.
	Next string
}
