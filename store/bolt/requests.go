package bolt

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/driver"
)

// The kinds of requests. A request's key begins with its kind.
const (
	keyRequest     = "k"
	webhookRequest = "w"
)

// forgetStep is the maximum number of expired requests that are removed when one is stored.
const forgetStep = 8

// requests caches the number of stored requests by kind and account. Only the writer's steps use
// it.
type requests struct {
	rows *mirror.Mirror[string, accountRequests]
}

// accountRequests is the cached state of the requests of one kind and account.
type accountRequests struct {
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

func newRequests() requests {
	return requests{mirror.New[string](mirror.Options[accountRequests]{Max: maxCounts})}
}

// of returns the number of stored requests of the kind and account.
func (r *requests) of(b *batch, kind, account string) accountRequests {
	made, ok := r.rows.InStep(kind + account)
	if ok {
		return made
	}
	prefix := requestKey(kind, account, "")
	rows := b.tx.Bucket(bucketRequests).Cursor()
	for k, _ := rows.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = rows.Next() {
		made.count++
	}
	r.rows.Keep(kind+account, made)
	return made
}

// add changes the number of requests by n, which may be negative. Call it before the step stores
// or removes the requests.
func (r *requests) add(b *batch, kind, account string, n int) {
	if made, ok := r.rows.InStep(kind + account); ok {
		r.rows.Set(b, kind+account, accountRequests{count: made.count + n})
	} else {
		r.rows.Drop(b, kind+account)
	}
}

// check returns [apierr.ErrIdempotencyKeys] if the account has reached its limit of unexpired
// requests. If expired requests count toward the limit, check removes some of them.
func (r *requests) check(b *batch, kind, account string, options *driver.CreateOptions) error {
	if options.IdempotencyKey == "" || options.MaxIdempotencyKeys == 0 {
		return nil
	}
	made := r.of(b, kind, account)
	if made.count < options.MaxIdempotencyKeys {
		return nil
	}
	if f := made.full; f.most == options.MaxIdempotencyKeys && f.lifetime == options.IdempotencyTTL && time.Now().Before(f.until) {
		return apierr.ErrIdempotencyKeys
	}
	oldest, known := time.Time{}, 0
	var old [][]byte // deleted after the loop: a cursor skips keys after a deletion
	prefix, since := requestKey(kind, account, ""), since(options)
	rows := b.tx.Bucket(bucketRequests).Cursor()
	for k, value := rows.Seek(prefix); bytes.HasPrefix(k, prefix); k, value = rows.Next() {
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
		r.rows.Keep(kind+account, made)
		return apierr.ErrIdempotencyKeys
	}
	return r.forget(b, old, since)
}

// repeated returns a [driver.DuplicateRequestError] if the account has used the idempotency key
// before and the request has not expired.
func (b *batch) repeated(kind, account string, options *driver.CreateOptions) error {
	if options.IdempotencyKey == "" {
		return nil
	}
	value := b.Get(bucketRequests, requestKey(kind, account, options.IdempotencyKey))
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

// note stores a request that has created the object with that ID. It does nothing if the request
// has no idempotency key.
func (r *requests) note(b *batch, kind, account, id string, options *driver.CreateOptions) error {
	if options.IdempotencyKey == "" {
		return nil
	}
	made := record.Request{ID: id, Fingerprint: options.Fingerprint, At: record.Round(time.Now()), KeyID: options.By.KeyID}
	key := requestKey(kind, account, options.IdempotencyKey)
	if b.Get(bucketRequests, key) == nil {
		r.add(b, kind, account, 1)
	}
	if err := b.Put(bucketRequests, key, made.Encode()); err != nil {
		return err
	}
	if err := b.Put(bucketRequestTimes, record.RequestTimeKey(made.At, key), nil); err != nil {
		return err
	}
	return r.forgetOldest(b, since(options))
}

// since returns the time of the oldest request that has not expired.
func since(options *driver.CreateOptions) time.Time {
	return record.Round(time.Now().Add(-options.IdempotencyTTL))
}

// forgetOldest removes up to forgetStep requests stored before since.
func (r *requests) forgetOldest(b *batch, since time.Time) error {
	var old [][]byte // deleted after the loop: a cursor skips keys after a deletion
	c := b.tx.Bucket(bucketRequestTimes).Cursor()
	for k, _ := c.First(); len(old) < forgetStep && k != nil && bytes.Compare(k, record.RequestTimeKey(since, nil)) < 0; k, _ = c.Next() {
		old = append(old, bytes.Clone(k))
	}
	return r.forget(b, old, since)
}

// forget removes expired requests. old holds their keys in bucketRequestTimes.
func (r *requests) forget(b *batch, old [][]byte, since time.Time) error {
	for _, k := range old {
		key := k[8:]
		// Keep a request that has been stored again since.
		value := b.Get(bucketRequests, key)
		if noted, err := record.DecodeRequest(value); value == nil || err == nil && !noted.At.Before(since) {
			continue
		}
		if err := b.Delete(bucketRequests, key); err != nil {
			return err
		}
		kind, account := requestOwner(key)
		r.add(b, kind, account, -1)
	}
	return b.DeleteAll(bucketRequestTimes, old)
}

// forgetOf removes the requests that the key made. It reads all requests of the account.
func (r *requests) forgetOf(b *batch, account, keyID string) error {
	for _, kind := range []string{keyRequest, webhookRequest} {
		if r.of(b, kind, account).count == 0 {
			continue
		}
		var made, times [][]byte // deleted after the loop: a cursor skips keys after a deletion
		prefix := requestKey(kind, account, "")
		rows := b.tx.Bucket(bucketRequests).Cursor()
		for k, value := rows.Seek(prefix); bytes.HasPrefix(k, prefix); k, value = rows.Next() {
			if request, err := record.DecodeRequest(value); err == nil && request.KeyID == keyID {
				made, times = append(made, bytes.Clone(k)), append(times, record.RequestTimeKey(request.At, k))
			}
		}
		if len(made) == 0 {
			continue
		}
		slices.SortFunc(times, bytes.Compare)
		r.add(b, kind, account, -len(made))
		if err := b.DeleteAll(bucketRequests, made); err != nil {
			return err
		}
		if err := b.DeleteAll(bucketRequestTimes, times); err != nil {
			return err
		}
	}
	return nil
}

func requestKey(kind, account, name string) []byte {
	return append([]byte(kind), record.Prefixed(account, name)...)
}

// requestOwner returns the kind and account of a key made by requestKey.
func requestOwner(key []byte) (kind, account string) {
	length, n := binary.Uvarint(key[1:])
	rest := key[1+n:]
	return string(key[:1]), string(rest[:length])
}
