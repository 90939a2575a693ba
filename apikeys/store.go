package apikeys

import (
	"context"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/capability"
)

// A Store keeps keys. It is what an author of a backend implements. The comments of its
// methods are the contract, together with what [package store] says once of every method:
// atomicity, errors, contexts, clocks, ids and copies. Package storetest proves a store.
//
// A store takes any Hash but the zero one. A zero Previous is none, and never found.
// Hint goes with Hash: a change that sets another Hash sets another Hint, or none.
//
// [package store]: https://pkg.go.dev/github.com/storageapi/storageapi/store
type Store interface {
	// Capabilities returns what the store can do besides.
	Capabilities() capability.Set

	// CreateKey adds a key and, in the same step, notes what request made it, if
	// options name one. [auth.ErrCredentialChanged] if options.By is not what it was, before all else. A
	// [*DuplicateRequestError] if the account has made a request of that
	// name within options.IdempotencyTTL, for the same key or another, and whether or not its
	// key is still there. ErrExists if the account has a key of that id, or any key,
	// in any account, has one of its hashes, now or as its previous one.
	// ErrLimit if the account has options.MaxCount keys already, dead ones included.
	// ErrShareLimit if options.By is not zero, and options.Share.MayExceed and Exceeded say so; Exceeded
	// is asked only then: it goes through all keys of the account.
	// ErrIdempotencyKeys if options name a request, and options.MaxIdempotencyKeys of the account's are
	// known already.
	// What is returned as an error adds and notes nothing. Each call that notes
	// a request forgets some that are older than options.IdempotencyTTL, so that they do
	// not pile up.
	CreateKey(ctx context.Context, key Key, options CreateOptions) error

	// KeyByHash returns the key whose Hash or Previous is hash, whether or not
	// it has expired, without its uses; or ErrNotFound. It is called on
	// every request, and sees every change that had returned when it was
	// called.
	KeyByHash(ctx context.Context, hash Hash) (Key, error)

	// KeyByID returns a key, or ErrNotFound. It is never answered from memory that
	// another process could have made old.
	KeyByID(ctx context.Context, account, id string) (Key, error)

	// ListKeys returns a part of the account's keys by descending id, which is
	// newest first; an empty list past the end. The id after which the page
	// begins need not exist any more.
	ListKeys(ctx context.Context, account string, page Page) ([]Key, error)

	// ExpiringKeys returns a part of the keys of all accounts that have an ExpiresAt, by
	// ascending ExpiresAt, Account and ID, expired ones too, with their uses; an empty list
	// past the end. Keys of accounts that are being erased are left out. CreateKey, UpdateKey and DeleteKey list and
	// unlist them in the same step.
	// A store that is in a file or a database has an index for it: a page takes as long as
	// reading as many keys by id.
	ExpiringKeys(ctx context.Context, query ExpiryQuery) ([]Key, error)

	// UpdateKey calls change with a copy of the key, stores what change leaves
	// in it, and returns that. ErrNotFound if there is no such key; ErrExists
	// if one of its hashes is then another key's; change's own error if it
	// returns one, and nothing is stored. Hashes the key no longer has stop
	// being found. ID, Account, CreatedAt, CreatedBy and LastUsedAt keep their values
	// also if change sets others, and uses stay with their hashes: what
	// becomes Previous keeps its own as PreviousUsedAt. No other change of the
	// key comes between reading and storing; change may run more than once, and
	// must not call the store. The audit entry that it is given is zero, and is stored in the
	// same step as change leaves it.
	UpdateKey(ctx context.Context, account, id string, change func(*Key, *audit.Entry) error) (Key, error)

	// DeleteKey removes a key with its hashes and its uses, and the notes of the requests that it
	// has made (CreateOptions.By), of keys and of webhooks; or returns ErrNotFound. check, unless it is nil, is called with the key before: if it
	// returns an error, that is returned and nothing is removed. No other change
	// of the key comes between; check may run more than once, and must not call
	// the store. The audit entry is stored in the same step. Once DeleteKey has returned nil, KeyByHash does not find the
	// key.
	DeleteKey(ctx context.Context, account, id string, check func(Key) error, entry audit.Entry) error

	// RecordKeyUse sets the LastUsedAt of each of the keys to the time given,
	// unless a later one is recorded already; it never sets one back. The same
	// goes for the use of the hash: that of Hash is told once it is Previous,
	// that of Previous as PreviousUsedAt, that of another not at all. Keys that
	// are gone are passed over. It touches nothing that UpdateKey stores. The
	// same key may occur more than once.
	RecordKeyUse(ctx context.Context, uses []KeyUse) error
}
