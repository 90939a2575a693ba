package transfer

import (
	"context"
	"errors"
	"iter"

	"github.com/storageapi/storageapi/store/capability"
)

// ErrPosition is returned by [Store.Export] if after is not a position of this store.
var ErrPosition = errors.New("position does not belong to an export of this store; start without a position")

// ErrConflict is wrapped by the error of [Store.Import] if an imported record clashes with a record
// in the store: another key has one of the same hashes, another account has a webhook or recovery
// with the same ID, or the webhook already has a different unfinished recovery. The error names the
// record.
var ErrConflict = errors.New("belongs to another record in this store")

// ErrRecord is wrapped by the error for a record that is malformed or cannot be imported. The error
// names the field, and contains no secret.
var ErrRecord = errors.New("invalid record")

// A Store is the part of a store that exports and imports all its records. The general rules in
// package store apply to its methods as well.
type Store interface {
	// Capabilities returns the optional capabilities of the store.
	Capabilities() capability.Set

	// Accounts returns at most limit accounts that have a key, a webhook or an alert, in ascending
	// byte order, beginning after the given account. It omits accounts that have other records
	// only, such as old events; an Export of all accounts includes them.
	Accounts(ctx context.Context, after string, limit int) ([]string, error)

	// Export returns a page of the account's records. If account is empty, it returns the records
	// of all accounts and of the store itself. after is the Next of the previous page; empty means
	// the first page. A position remains valid after a restart.
	//
	// Records are in an order in which they can be imported: webhooks before events, events in the
	// order in which they were stored, recoveries after events. If nothing writes to the store, the
	// pages hold each record exactly once. Otherwise each page is still a consistent snapshot.
	//
	// A delivery that is being attempted is exported as pending. Pending deliveries of a deleted
	// webhook are omitted. An account that is being erased has no records.
	Export(ctx context.Context, account, after string, limit int) (Page, error)

	// Import adds records in one step, in the order of Export. It returns an error that wraps
	// ErrConflict or ErrRecord if a record cannot be added, and [auth.ErrErasing] if the account of
	// a record is being erased. In both cases it adds nothing.
	//
	// Existing records do not change, so repeating an import has no effect. A key, webhook,
	// recovery or event exists if the store has one with the same ID; a Forgotten event must also
	// have the same PublishedAt. An alert exists if the store has one of the same series, a
	// deduplication key or request if the store has its key, and a scan if the store has a state of
	// the scan. Import never merges records.
	//
	// Imported events sort after the existing ones, in the given order, and keep their PublishedAt,
	// which determines when they are purged. If the store already had events, it may purge the
	// imported events later, after its earlier events. Events enqueued after the import do not get
	// an earlier PublishedAt than the imported events, unless the imported times are hours ahead of
	// the clock. Therefore Import limits a PublishedAt, and the time of a [Request], to an hour in
	// the future, see [NoLater]. A pending delivery is due when its Wait has passed after the
	// import. If no attempt was made since the delivery became pending, a store may make it due at
	// once.
	Import(ctx context.Context, records []Record) error
}

// A Page is a part of an export.
type Page struct {
	// Records holds at most limit records, of about 4 MiB in total. A page may hold fewer records,
	// even none, and still have a Next.
	Records []Record

	// Next is the position of the next page; empty if there is none.
	Next string

	// Unreadable holds the names of records that belong on this page but not in Records, because
	// they cannot be read: a sealing key is missing, or the record is damaged.
	Unreadable []string
}

// PageBytes is the approximate maximum size of a page's records, in bytes.
const PageBytes = 4 << 20

// Pages returns an iterator over the pages of an export, beginning with the first. It ends after an
// error.
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
