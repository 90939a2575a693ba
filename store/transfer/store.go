package transfer

import (
	"context"
	"errors"
	"iter"

	"github.com/storageapi/storageapi/store/capability"
)

// ErrPosition is returned by [Store.Export] if after is not a position of that store.
var ErrPosition = errors.New("not a position of an export of this store; begin without one")

// ErrConflict is wrapped by the error of [Store.Import] if what it is to add belongs to
// something else in the store: a hash to another key, or a webhook's or recovery's id to
// another account, or a webhook has another recovery that is not done. The error names it.
var ErrConflict = errors.New("belongs to something else in this store")

// ErrRecord is wrapped by the error for a record that is malformed, or cannot be imported
// as it is. The error names the field, and holds no secret.
var ErrRecord = errors.New("unusable record")

// A Store is the part of a store that gives out all that it keeps, and takes it in. What
// package store says of every method goes for these, too.
type Store interface {
	// Capabilities returns what the store can do besides.
	Capabilities() capability.Set

	// Accounts returns accounts that have a key, a webhook or an alert, in the order of
	// their bytes, at most limit of them: those after the given one, or the first if that
	// is empty. An account that has neither, and only a history, is not among them;
	// Export of all accounts has its records nevertheless.
	Accounts(ctx context.Context, after string, limit int) ([]string, error)

	// Export returns a part of the account's records, or of the records of all accounts
	// and of the store itself if account is empty. after is the Next of the page before;
	// empty: the first page. Positions are kept through a restart.
	//
	// Records come in an order in which they can be imported: webhooks before events,
	// events of an account in the order in which they were stored, those of all accounts
	// too, recoveries after events. As long as nothing writes to the store, its pages hold
	// each record once. If something does, each page is still of one moment.
	//
	// A delivery that is being attempted is exported as pending. What a deleted webhook was to get
	// and has not is left out. An account that is being erased has no records.
	Export(ctx context.Context, account, after string, limit int) (Page, error)

	// Import adds records in one step, in the order of Export. It returns an error that
	// wraps ErrConflict or ErrRecord for what cannot be added, and [auth.ErrErasing] if the
	// account of a record is being erased; nothing is added then.
	//
	// What is there already stays as it is, so records that are imported again change
	// nothing: a key, webhook or recovery of that id, an event of that id or, if it is
	// Forgotten, of that id and PublishedAt, an alert of that metric, a deduplication key,
	// an idempotency key, a file scan. Nothing is merged.
	//
	// Events come after those that the store has, in the order in which they are given,
	// and keep their PublishedAt, by which they are purged; a store may purge those of an
	// account that was imported next to others later, once what it had before is purged.
	// PublishedAt of what is enqueued afterwards is not before it, unless that is hours ahead of the clock: so one that
	// is more than an hour in the future becomes that, see [NoLater]; so does when a [Request] was made. What is pending is due
	// once its Wait has passed from now on; a store may have it due now if no attempt was made since it
	// became pending.
	Import(ctx context.Context, records []Record) error
}

// A Page is a part of an export.
type Page struct {
	// Records are as many as were asked for at most, and about 4 MiB. There may be fewer,
	// even none, with more to come.
	Records []Record

	// Next asks for the page that follows; empty if there is none.
	Next string

	// Unreadable names what is on the page and cannot be read, for want of a key or since
	// it is damaged. It is left out of Records.
	Unreadable []string
}

// PageBytes is about how many bytes of records a page has at most.
const PageBytes = 4 << 20

// Pages returns the pages of an export from the first one on. It ends after an error.
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
