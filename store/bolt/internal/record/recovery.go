package record

import (
	"github.com/storageapi/storageapi/store/driver"
)

// A Recovery is a [driver.Recovery] with the position at which it continues.
type Recovery struct {
	driver.Recovery
	Next uint64 // number at which to continue
}

func (c coder) recovery(r *Recovery) {
	c.time(&r.CreatedAt)
	text(c, &r.Account)
	text(c, &r.WebhookID)
	texts(c, &r.States)
	c.time(&r.From)
	c.time(&r.To)
	number(c, &r.Recovered)
	c.bool(&r.Done)
	number(c, &r.Next)
}

// Encode returns the encoded recovery. It omits the ID, which is the row's key.
func (r *Recovery) Encode() []byte {
	e := newEncoder(96)
	coder{to: &e}.recovery(r)
	return e
}

// DecodeRecovery decodes the recovery with the given ID.
func DecodeRecovery(id string, record []byte) (r Recovery, err error) {
	d := newDecoder(record)
	r.ID = id
	coder{from: d}.recovery(&r)
	return r, d.err()
}

// EncodeID returns the record of an ID.
func EncodeID(id string) []byte {
	e := newEncoder(len(id) + 1)
	e.string(id)
	return e
}

// EncodeIDs returns the record of several IDs.
func EncodeIDs(ids []string) []byte {
	e := newEncoder(32 * len(ids))
	for _, id := range ids {
		e.string(id)
	}
	return e
}

// DecodeIDs decodes a record made by EncodeIDs. A nil record has no IDs.
func DecodeIDs(record []byte) (ids []string, err error) {
	if record == nil {
		return nil, nil
	}
	d := newDecoder(record)
	for len(d.rest) > 0 && !d.failed {
		ids = append(ids, d.string())
	}
	return ids, d.err()
}

// DecodeID decodes a record made by EncodeID. It returns "" if the record is damaged.
func DecodeID(record []byte) string { return newDecoder(record).string() }
