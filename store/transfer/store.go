package transfer

import (
	"context"
	"errors"
	"iter"

	"github.com/storageapi/storageapi/store/capability"
)

// ErrPosition is returned by [Store.Export] if after is not a position of this store.
var ErrPosition = errors.New("position does not belong to an export of this store; start without a position")

// ErrConflict is wrapped by the error of [Store.Import] if an ID or a hash to be added belongs to
// another record in the store: a hash to another key, or the ID of a webhook or recovery to another
// account. It is also returned if a webhook already has another unfinished recovery. The error
// names the record.
var ErrConflict = errors.New("belongs to another record in this store")

// ErrRecord is wrapped by the error for a record that is malformed or cannot be imported. The error
// names the field, and contains no secret.
var ErrRecord = errors.New("invalid record")

// A Store is the part of a store that exports and imports all its records. The general rules in
// package store apply to its methods, too.
type Store interface {
	// Capabilities returns the optional capabilities of the store.
	Capabilities() capability.Set

	// Accounts returns at most limit accounts that have a key, a webhook or an alert, in ascending
	// order of bytes, beginning after the given one. Accounts that have only a history are not
	// listed; an Export of all accounts nevertheless includes their records.
	Accounts(ctx context.Context, after string, limit int) ([]string, error)

	// Export returns a page of the account's records, or of the records of all accounts and of the
	// store itself if account is empty. after is the Next of the previous page; empty: the first
	// page. Positions survive a restart.
	//
	// Records come in an order in which they can be imported: webhooks before events, events in the
	// order of storing (for one account and for all), recoveries after events. If nothing writes to
	// the store, the pages hold each record exactly once. Otherwise each page is still a consistent
	// snapshot.
	//
	// A delivery that is being attempted is exported as pending. Undelivered deliveries of a
	// deleted webhook are omitted. An account that is being erased has no records.
	Export(ctx context.Context, account, after string, limit int) (Page, error)

	// Import adds records in one step, in the order of Export. It returns an error that wraps
	// ErrConflict or ErrRecord if a record cannot be added, and [auth.ErrErasing] if the account of
	// a record is being erased; nothing is added then.
	//
	// Existing records do not change, so repeating an import has no effect. A record exists if the
	// store has a key, webhook or recovery with its ID; an event with its ID or, if it is
	// Forgotten, with its ID and PublishedAt; an alert of its metric; its deduplication key; its
	// idempotency key; or a file scan. Records are never merged.
	//
	// Imported events sort after the existing ones, in the given order, and keep their PublishedAt,
	// which determines when they are purged. A store may purge the events of an account that was
	// imported next to others later, once the events it had before are purged. Events enqueued
	// afterwards are not published before imported ones, unless those are hours ahead of the clock.
	// Therefore a PublishedAt more than an hour in the future is replaced by that limit, see
	// [NoLater], and likewise the time of a [Request]. Pending deliveries are due once their Wait
	// has passed from now on; if no attempt was made since a delivery became pending, a store may
	// make it due at once.
	Import(ctx context.Context, records []Record) error
}

// A Page is a part of an export.
type Page struct {
	// Records has at most limit records, of about 4 MiB. A page may hold fewer, even none, although
	// more follow.
	Records []Record

	// Next is the position of the next page; empty if there is none.
	Next string

	// Unreadable names records that belong on this page and cannot be read, because a key is
	// missing or they are damaged. They are not in Records.
	Unreadable []string
}

// PageBytes is the approximate maximum size of a page's records, in bytes.
const PageBytes = 4 << 20

// Pages returns the pages of an export, beginning with the first. It ends after an error.
func Pages(ctx context.Context, s Store, account string, limit int) iter.Seq2[Page, error] {
	return pagesFrom(ctx, s, account, "", limit)
}

func pagesFrom(ctx context.Context, s Store, account, after string, limit int) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		for {
			page, err := s.Export(ctx, account, after, limit)
			if !yield(page, err) || err != nil || page.Next == "" {
				return
			}
			after = page.Next
		}
	}
}
