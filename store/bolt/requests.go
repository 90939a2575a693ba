package bolt

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/storageapi/storageapi/internal/creation"
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
	creation.Repeated
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

// check returns ErrRequests if the account has made as many requests as it may. Some of
// those that are too old to be known it forgets.
func (r *requests) check(b *batch, kind, account string, terms *creation.Terms) error {
	if terms.Request == "" || terms.MaxRequests == 0 || r.census[kind].of(b.tx, account) < terms.MaxRequests {
		return nil
	}
	if f := r.full[kind+account]; f.most == terms.MaxRequests && f.lifetime == terms.Lifetime && time.Now().Before(f.until) {
		return creation.ErrRequests
	}
	oldest, known := time.Time{}, 0
	var old [][]byte // not deleted at once: a cursor skips keys after that
	prefix, since := requestKey(kind, account, ""), since(terms)
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
	if known >= terms.MaxRequests {
		if len(r.full) >= maxCensus {
			clear(r.full)
		}
		r.full[kind+account] = fullness{terms.MaxRequests, terms.Lifetime, oldest.Add(terms.Lifetime)}
		return creation.ErrRequests
	}
	return r.forget(b, old, since)
}

// repeated returns the error that the account has made the request before, or nil.
func (b *batch) repeated(kind, account string, terms *creation.Terms) error {
	if terms.Request == "" {
		return nil
	}
	record := b.get(bucketRequests, requestKey(kind, account, terms.Request))
	if record == nil {
		return nil
	}
	before, err := decodeRequest(record)
	if err != nil {
		return err
	}
	if before.at.Before(since(terms)) {
		return nil
	}
	return &before.Repeated
}

// note remembers a request that has made something, if terms name one.
func (r *requests) note(b *batch, kind, account, id string, terms *creation.Terms) error {
	if terms.Request == "" {
		return nil
	}
	noted := request{creation.Repeated{ID: id, Sum: terms.Sum}, stored(time.Now())}
	key := requestKey(kind, account, terms.Request)
	if b.get(bucketRequests, key) == nil {
		r.census[kind].add(account, 1)
	}
	if err := b.put(bucketRequests, key, noted.encode()); err != nil {
		return err
	}
	if err := b.put(bucketRequestTimes, requestTime(noted.at, key), nil); err != nil {
		return err
	}
	return r.forgetOldest(b, since(terms))
}

// since returns when the oldest request that is known was noted.
func since(terms *creation.Terms) time.Time { return stored(time.Now().Add(-terms.Lifetime)) }

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
		record := b.get(bucketRequests, key)
		if noted, err := decodeRequest(record); record == nil || err == nil && !noted.at.Before(since) {
			continue
		}
		if err := b.delete(bucketRequests, key); err != nil {
			return err
		}
		kind, account := requestOwner(key)
		r.census[kind].add(account, -1)
	}
	return b.deleteAll(bucketRequestTimes, old)
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
	e := newEncoder(16 + len(r.Sum) + len(r.ID))
	e.time(r.at)
	e.raw(r.Sum[:])
	e.string(r.ID)
	return e
}

func decodeRequest(record []byte) (r request, err error) {
	d := newDecoder(record)
	r.at = d.time()
	copy(r.Sum[:], d.raw(uint64(len(r.Sum))))
	r.ID = d.string()
	return r, d.err()
}

// stored returns a time as it is read again: in UTC, to the millisecond.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
