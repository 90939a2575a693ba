package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/webhooks"
)

// The kinds of requests, with which their keys begin.
const (
	keyRequest     = "k"
	webhookRequest = "w"
)

// forgetStep is how many requests are forgotten at most when one is noted.
const forgetStep = 8

// A request is one that made something.
type request struct {
	apikeys.DuplicateRequestError
	at time.Time
}

// requests remembers how many accounts have made. As with a census, only steps of the
// writer use it.
type requests struct {
	census map[string]*census // by kind
	full   map[string]fullness
}

// A fullness says that an account has as many requests as it may, by kind and account:
// they need not be counted before the oldest of them is forgotten.
type fullness struct {
	most     int
	lifetime time.Duration
	until    time.Time
}

func newRequests() requests {
	r := requests{make(map[string]*census), make(map[string]fullness)}
	for _, kind := range []string{keyRequest, webhookRequest} {
		r.census[kind] = &census{bucket: bucketRequests, kind: kind}
	}
	return r
}

func (r *requests) forgetAll() {
	for _, c := range r.census {
		c.forgetAll()
	}
	clear(r.full)
}

// check returns ErrIdempotencyKeys if the account has made as many requests as it may. Some of
// those that are too old to be known it forgets.
func (r *requests) check(b *batch, kind, account string, options *apikeys.CreateOptions) error {
	if options.IdempotencyKey == "" || options.MaxIdempotencyKeys == 0 || r.census[kind].of(b.tx, account) < options.MaxIdempotencyKeys {
		return nil
	}
	if f := r.full[kind+account]; f.most == options.MaxIdempotencyKeys && f.lifetime == options.IdempotencyTTL && time.Now().Before(f.until) {
		return apikeys.ErrIdempotencyKeys
	}
	oldest, known := time.Time{}, 0
	var old [][]byte // not deleted at once: a cursor skips keys after that
	prefix, since := requestKey(kind, account, ""), since(options)
	rows := b.tx.Bucket(bucketRequests).Cursor()
	for k, record := rows.Seek(prefix); bytes.HasPrefix(k, prefix); k, record = rows.Next() {
		switch before, err := decodeRequest(record); {
		case err != nil:
			return err
		case !before.at.Before(since):
			if known++; known == 1 || before.at.Before(oldest) {
				oldest = before.at
			}
		case len(old) < 8*forgetStep:
			old = append(old, requestTime(before.at, k))
		}
	}
	if known >= options.MaxIdempotencyKeys {
		if len(r.full) >= maxCensus {
			clear(r.full)
		}
		r.full[kind+account] = fullness{options.MaxIdempotencyKeys, options.IdempotencyTTL, oldest.Add(options.IdempotencyTTL)}
		return apikeys.ErrIdempotencyKeys
	}
	return r.forget(b, old, since)
}

// repeated returns the error that the account has made the request before, or nil.
func (b *batch) repeated(kind, account string, options *apikeys.CreateOptions) error {
	if options.IdempotencyKey == "" {
		return nil
	}
	record := b.Get(bucketRequests, requestKey(kind, account, options.IdempotencyKey))
	if record == nil {
		return nil
	}
	before, err := decodeRequest(record)
	if err != nil {
		return err
	}
	if before.at.Before(since(options)) {
		return nil
	}
	return &before.DuplicateRequestError
}

// ofWebhook returns the error of package webhooks that says what err, of package apikeys,
// says; any other error as it is.
func ofWebhook(err error) error {
	var duplicate *apikeys.DuplicateRequestError
	switch {
	case errors.As(err, &duplicate):
		return (*webhooks.DuplicateRequestError)(duplicate)
	case errors.Is(err, apikeys.ErrIdempotencyKeys):
		return webhooks.ErrIdempotencyKeys
	}
	return err
}

// note remembers a request that has made something, if options name one.
func (r *requests) note(b *batch, kind, account, id string, options *apikeys.CreateOptions) error {
	if options.IdempotencyKey == "" {
		return nil
	}
	noted := request{apikeys.DuplicateRequestError{ID: id, Fingerprint: options.Fingerprint}, stored(time.Now())}
	key := requestKey(kind, account, options.IdempotencyKey)
	if b.Get(bucketRequests, key) == nil {
		r.census[kind].add(account, 1)
	}
	if err := b.Put(bucketRequests, key, noted.encode()); err != nil {
		return err
	}
	if err := b.Put(bucketRequestTimes, requestTime(noted.at, key), nil); err != nil {
		return err
	}
	return r.forgetOldest(b, since(options))
}

// since returns when the oldest request that is known was noted.
func since(options *apikeys.CreateOptions) time.Time {
	return stored(time.Now().Add(-options.IdempotencyTTL))
}

// forgetOldest forgets some of the requests that were noted before then.
func (r *requests) forgetOldest(b *batch, since time.Time) error {
	var old [][]byte // not deleted at once: a cursor skips keys after that
	c := b.tx.Bucket(bucketRequestTimes).Cursor()
	for k, _ := c.First(); len(old) < forgetStep && k != nil && bytes.Compare(k, requestTime(since, nil)) < 0; k, _ = c.Next() {
		old = append(old, bytes.Clone(k))
	}
	return r.forget(b, old, since)
}

// forget forgets requests by their keys in bucketRequestTimes.
func (r *requests) forget(b *batch, old [][]byte, since time.Time) error {
	for _, k := range old {
		key := k[8:]
		// It may have been noted again since.
		record := b.Get(bucketRequests, key)
		if noted, err := decodeRequest(record); record == nil || err == nil && !noted.at.Before(since) {
			continue
		}
		if err := b.Delete(bucketRequests, key); err != nil {
			return err
		}
		kind, account := requestOwner(key)
		r.census[kind].add(account, -1)
	}
	return b.DeleteAll(bucketRequestTimes, old)
}

func requestKey(kind, account, name string) []byte {
	return append([]byte(kind), prefixed(account, name)...)
}

// requestOwner takes apart what requestKey made, but for the name.
func requestOwner(key []byte) (kind, account string) {
	length, n := binary.Uvarint(key[1:])
	rest := key[1+n:]
	return string(key[:1]), string(rest[:length])
}

// requestTime returns the key in bucketRequestTimes of that in bucketRequests.
func requestTime(at time.Time, key []byte) []byte {
	const sign = 1 << 63 // times before 1970 sort first
	return append(binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli())^sign), key...)
}

func (r *request) encode() []byte {
	e := newEncoder(16 + len(r.Fingerprint) + len(r.ID))
	e.time(r.at)
	e.raw(r.Fingerprint[:])
	e.string(r.ID)
	return e
}

func decodeRequest(record []byte) (r request, err error) {
	d := newDecoder(record)
	r.at = d.time()
	copy(r.Fingerprint[:], d.raw(uint64(len(r.Fingerprint))))
	r.ID = d.string()
	return r, d.err()
}

// stored returns a time as it is read again: in UTC, to the millisecond.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
