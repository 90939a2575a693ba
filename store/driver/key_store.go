package driver

import (
	"context"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/capability"
)

// A KeyStore keeps API keys.
//
// A store accepts any Hash but the zero Hash. A zero Previous means none, and is never found.
// Hint belongs to Hash: a change of Hash also changes or clears Hint.
type KeyStore interface {
	// Capabilities returns the optional capabilities of the store.
	Capabilities() capability.Set

	// CreateKey adds a key. If options has an idempotency key, CreateKey records the request in
	// the same step, and removes some requests older than options.IdempotencyTTL so that they do
	// not accumulate. On error it stores nothing. It returns:
	//   - [auth.ErrCredentialChanged], before all else, if options.By is no longer accepted;
	//   - a [*DuplicateRequestError] if the account has used the idempotency key within
	//     options.IdempotencyTTL, for any key, existing or deleted;
	//   - ErrExists if the account has a key with the ID, or if a hash of the new key is the
	//     current or previous hash of a key in any account;
	//   - ErrLimit if the account has options.MaxCount keys, including expired keys;
	//   - ErrIdempotencyKeys if options has an idempotency key and the account already has
	//     options.MaxIdempotencyKeys idempotency keys in use.
	CreateKey(ctx context.Context, key Key, options CreateOptions) error

	// KeyByHash returns the key whose Hash or Previous equals hash, even if the key has expired. If
	// there is none, it returns ErrNotFound. It leaves LastUsedAt, PreviousUsedAt and Activity
	// zero. The service calls it on every request. It must see each change made by a call that
	// returned before KeyByHash was called.
	KeyByHash(ctx context.Context, hash Hash) (Key, error)

	// KeyByID returns a key, or ErrNotFound. It must not use a cache that
	// another process could have made stale.
	KeyByID(ctx context.Context, account, id string) (Key, error)

	// ListKeys returns a page of the account's keys by descending ID, which is newest first. A page
	// past the end is empty. The key with the ID query.After may have been deleted.
	ListKeys(ctx context.Context, account string, query ListQuery) ([]Key, error)

	// ExpiringKeys returns a page of the keys of all accounts that have an ExpiresAt, by ascending
	// ExpiresAt, Account and ID, including expired keys, with their uses. A page past the end is
	// empty. ExpiringKeys omits keys of accounts that are being erased. CreateKey, UpdateKey and
	// DeleteKey update the list in the same step. A store in a file or database needs an index, so
	// that reading a page costs no more than reading its keys by ID.
	ExpiringKeys(ctx context.Context, query ExpiryQuery) ([]Key, error)

	// UpdateKey calls change with a copy of the key and a zero audit entry, stores both as modified
	// in one step, and returns the key. It returns ErrNotFound if there is no such key, and
	// ErrExists if another key has one of the new hashes. If change returns an error, UpdateKey
	// returns it and stores nothing. KeyByHash no longer finds replaced hashes. ID, Account,
	// CreatedAt, CreatedBy, LastUsedAt and Activity keep their values even if change modifies them.
	// Uses belong to hashes: a hash that becomes Previous keeps its last use as PreviousUsedAt. No
	// other change of the key happens between reading and storing. change may run more than once,
	// and must not call the store.
	UpdateKey(ctx context.Context, account, id string, change func(*Key, *audit.Entry) error) (Key, error)

	// DeleteKey removes a key with its hashes, its uses, and the recorded requests to create keys
	// and webhooks that were made with it (CreateOptions.By). It returns ErrNotFound if there is no
	// such key. If check is not nil, DeleteKey first calls it with the key's current state; if
	// check returns an error, DeleteKey returns it and removes nothing. No other change of the key
	// happens between check and the removal. check may run more than once, and must not call the
	// store. The audit entry is stored in the same step. Once DeleteKey has returned nil, KeyByHash
	// does not find the key.
	DeleteKey(ctx context.Context, account, id string, check func(Key) error, entry audit.Entry) error

	// RecordKeyUse sets the LastUsedAt of each key to the given time, unless a later time is
	// already recorded. It also records the last use of the given hash in the same way: a use of
	// Previous sets PreviousUsedAt, a use of Hash becomes PreviousUsedAt at the next rotation, and
	// a use of any other hash is ignored. It adds the activity to the key's Activity, as the latest
	// unless At is before LastUsedAt; see [KeyActivity.Add]. Deleted keys are skipped. It does not
	// modify anything that UpdateKey stores. A key may occur more than once.
	RecordKeyUse(ctx context.Context, uses []KeyUse) error
}
