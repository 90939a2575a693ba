// Package requests stores requests that have an idempotency key, in two buckets of a bbolt file:
// each request has one row by key and one row by time. A repeated request gets the result of the
// first one.
package requests

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// A Kind is the kind of the object that a request creates. The key of a request's row begins with
// its kind.
type Kind string

// The kinds.
const (
	Key     Kind = "k"
	Webhook Kind = "w"
)

// Kinds are all kinds.
var Kinds = []Kind{Key, Webhook}

const (
	maxAccounts = 10_000 // maximum number of cached states
	forgetStep  = 8      // expired requests removed when one is stored
)

// Requests are the requests of a file. Only steps of the file's writer may use the methods that
// have a Tx.
type Requests struct {
	mirror *mirror.Mirror[string, state] // by kind and account
}

// A state is the cached state of the requests of a kind and account.
type state struct {
	count int
	full  fullness
}

// A fullness records that an account is at its limit of requests, so that they need not be counted
// again until the oldest one expires.
type fullness struct {
	most     int
	lifetime time.Duration
	until    time.Time
}

// New returns the requests of a file.
func New() *Requests {
	return &Requests{mirror.New[string](mirror.Options[state]{Max: maxAccounts})}
}

// End must be called after each transaction, see [mirror.Mirror.End].
func (r *Requests) End(ending mirror.Ending) { r.mirror.End(ending) }

// Row returns the key of a request's row. If name is empty, it returns the prefix of all such keys
// of the kind and account.
func Row(kind Kind, account, name string) []byte {
	return append([]byte(kind), record.Prefixed(account, name)...)
}

// of returns the state of the kind and account. It counts the stored requests if the state is not
// cached.
func (r *Requests) of(tx *groupcommit.Tx, kind Kind, account string) state {
	made, ok := r.mirror.InStep(string(kind) + account)
	if !ok {
		made.count = rows.Count(tx.Bolt.Bucket(schema.Requests), Row(kind, account, ""))
		r.mirror.Keep(string(kind)+account, made)
	}
	return made
}

// add changes the number of requests by n, which may be negative. Call it before the requests are
// stored or removed.
func (r *Requests) add(tx *groupcommit.Tx, kind Kind, account string, n int) {
	if made, ok := r.mirror.InStep(string(kind) + account); ok {
		r.mirror.Set(tx, string(kind)+account, state{count: made.count + n})
	} else {
		r.mirror.Drop(tx, string(kind)+account)
	}
}

// Check returns [apierr.ErrIdempotencyKeys] if the account has reached its limit of unexpired
// requests. If expired requests count toward the limit, Check removes some of them.
func (r *Requests) Check(tx *groupcommit.Tx, kind Kind, account string, options *driver.CreateOptions) error {
	if options.IdempotencyKey == "" || options.MaxIdempotencyKeys == 0 {
		return nil
	}
	made := r.of(tx, kind, account)
	if made.count < options.MaxIdempotencyKeys {
		return nil
	}
	if f := made.full; f.most == options.MaxIdempotencyKeys && f.lifetime == options.IdempotencyTTL && time.Now().Before(f.until) {
		return apierr.ErrIdempotencyKeys
	}
	oldest, known, since := time.Time{}, 0, since(options)
	var old [][]byte
	for k, value := range rows.WithPrefix(tx.Bolt.Bucket(schema.Requests), Row(kind, account, "")) {
		switch before, err := record.DecodeRequest(value); {
		case err != nil:
			return err
		case !before.At.Before(since):
			if known++; known == 1 || before.At.Before(oldest) {
				oldest = before.At
			}
		case len(old) < 8*forgetStep:
			old = append(old, record.RequestTimeKey(before.At, k))
		}
	}
	if known >= options.MaxIdempotencyKeys {
		made.full = fullness{options.MaxIdempotencyKeys, options.IdempotencyTTL, oldest.Add(options.IdempotencyTTL)}
		r.mirror.Keep(string(kind)+account, made)
		return apierr.ErrIdempotencyKeys
	}
	return r.forget(tx, old, since)
}

// Repeated returns a [driver.DuplicateRequestError] if the account has used the idempotency key
// before and the request has not expired.
func Repeated(tx *bbolt.Tx, kind Kind, account string, options *driver.CreateOptions) error {
	if options.IdempotencyKey == "" {
		return nil
	}
	value := tx.Bucket(schema.Requests).Get(Row(kind, account, options.IdempotencyKey))
	if value == nil {
		return nil
	}
	before, err := record.DecodeRequest(value)
	if err != nil {
		return err
	}
	if before.At.Before(since(options)) {
		return nil
	}
	return &driver.DuplicateRequestError{ID: before.ID, Fingerprint: before.Fingerprint}
}

// Note stores a request that has created the object with that ID. It does nothing if the request
// has no idempotency key.
func (r *Requests) Note(tx *groupcommit.Tx, kind Kind, account, id string, options *driver.CreateOptions) error {
	if options.IdempotencyKey == "" {
		return nil
	}
	made := record.Request{ID: id, Fingerprint: options.Fingerprint, At: record.Round(time.Now()), KeyID: options.By.KeyID}
	if err := r.Put(tx, kind, account, options.IdempotencyKey, &made); err != nil {
		return err
	}
	return r.forgetOldest(tx, since(options))
}

// Put stores a request under an idempotency key.
func (r *Requests) Put(tx *groupcommit.Tx, kind Kind, account, name string, made *record.Request) error {
	key := Row(kind, account, name)
	if tx.Get(schema.Requests, key) == nil {
		r.add(tx, kind, account, 1)
	}
	if err := tx.Put(schema.Requests, key, made.Encode()); err != nil {
		return err
	}
	return tx.Put(schema.RequestTimes, record.RequestTimeKey(made.At, key), nil)
}

// since returns the earliest time of a request that has not expired.
func since(options *driver.CreateOptions) time.Time {
	return record.Round(time.Now().Add(-options.IdempotencyTTL))
}

// forgetOldest removes up to forgetStep requests stored before since.
func (r *Requests) forgetOldest(tx *groupcommit.Tx, since time.Time) error {
	var old [][]byte // deleted after the loop: a cursor skips keys after a deletion
	c := tx.Bolt.Bucket(schema.RequestTimes).Cursor()
	for k, _ := c.First(); len(old) < forgetStep && k != nil && bytes.Compare(k, record.RequestTimeKey(since, nil)) < 0; k, _ = c.Next() {
		old = append(old, bytes.Clone(k))
	}
	return r.forget(tx, old, since)
}

// forget removes expired requests. old holds their keys in schema.RequestTimes.
func (r *Requests) forget(tx *groupcommit.Tx, old [][]byte, since time.Time) error {
	for _, k := range old {
		key := k[8:]
		// Keep a request that has been stored again since.
		value := tx.Get(schema.Requests, key)
		if noted, err := record.DecodeRequest(value); value == nil || err == nil && !noted.At.Before(since) {
			continue
		}
		if err := tx.Delete(schema.Requests, key); err != nil {
			return err
		}
		kind, account := owner(key)
		r.add(tx, kind, account, -1)
	}
	return tx.DeleteAll(schema.RequestTimes, old)
}

// owner returns the kind and account of a key made by Row.
func owner(key []byte) (kind Kind, account string) {
	length, n := binary.Uvarint(key[1:])
	rest := key[1+n:]
	return Kind(key[:1]), string(rest[:length])
}

// ForgetOf removes the requests that the API key made. It reads all requests of the account.
func (r *Requests) ForgetOf(tx *groupcommit.Tx, account, keyID string) error {
	for _, kind := range Kinds {
		if r.of(tx, kind, account).count == 0 {
			continue
		}
		var made, times [][]byte // deleted after the loop: a cursor skips keys after a deletion
		for k, value := range rows.WithPrefix(tx.Bolt.Bucket(schema.Requests), Row(kind, account, "")) {
			if request, err := record.DecodeRequest(value); err == nil && request.KeyID == keyID {
				made, times = append(made, bytes.Clone(k)), append(times, record.RequestTimeKey(request.At, k))
			}
		}
		if len(made) == 0 {
			continue
		}
		slices.SortFunc(times, bytes.Compare)
		r.add(tx, kind, account, -len(made))
		if err := tx.DeleteAll(schema.Requests, made); err != nil {
			return err
		}
		if err := tx.DeleteAll(schema.RequestTimes, times); err != nil {
			return err
		}
	}
	return nil
}

// Erase removes up to limit requests of the kind and account, and returns their number. It leaves
// their rows by time, because these are not sorted by account.
func (r *Requests) Erase(tx *groupcommit.Tx, kind Kind, account string, limit int) (erased int, err error) {
	keys := rows.Keys(tx.Bolt.Bucket(schema.Requests), Row(kind, account, ""), limit)
	r.add(tx, kind, account, -len(keys))
	return len(keys), tx.DeleteAll(schema.Requests, keys)
}
