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
func (b *batch) note(kind, account, id string, terms *creation.Terms) error {
	if terms.Request == "" {
		return nil
	}
	noted := request{creation.Repeated{ID: id, Sum: terms.Sum}, stored(time.Now())}
	key := requestKey(kind, account, terms.Request)
	if err := b.put(bucketRequests, key, noted.encode()); err != nil {
		return err
	}
	if err := b.put(bucketRequestTimes, requestTime(noted.at, key), nil); err != nil {
		return err
	}
	return b.forgetRequests(since(terms))
}

// since returns when the oldest request that is known was noted.
func since(terms *creation.Terms) time.Time { return stored(time.Now().Add(-terms.Lifetime)) }

// forgetRequests forgets some of the requests that were noted before then.
func (b *batch) forgetRequests(since time.Time) error {
	var old [][]byte // not deleted at once: a cursor skips keys after that
	c := b.tx.Bucket(bucketRequestTimes).Cursor()
	for k, _ := c.First(); len(old) < forgetStep && k != nil && bytes.Compare(k, requestTime(since, nil)) < 0; k, _ = c.Next() {
		old = append(old, bytes.Clone(k))
	}
	for _, k := range old {
		key := k[8:]
		// It may have been noted again since.
		if r, err := decodeRequest(b.get(bucketRequests, key)); err != nil || r.at.Before(since) {
			if err := b.delete(bucketRequests, key); err != nil {
				return err
			}
		}
	}
	return b.deleteAll(bucketRequestTimes, old)
}

func requestKey(kind, account, name string) []byte {
	return append([]byte(kind), prefixed(account, name)...)
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
