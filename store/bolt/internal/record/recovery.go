package record

import "github.com/storageapi/storageapi/webhooks"

// A Recovery is one with its progress.
type Recovery struct {
	webhooks.Recovery
	Next uint64 // the number of the delivery to go on with
}

// Encode returns the record, which does not repeat the ID that it stands under.
func (r *Recovery) Encode() []byte {
	e := newEncoder(96)
	e.time(r.CreatedAt)
	e.string(r.Account)
	e.string(r.WebhookID)
	e.uint(uint64(len(r.States)))
	for _, state := range r.States {
		e.string(string(state))
	}
	e.time(r.From)
	e.time(r.To)
	e.uint(uint64(r.Recovered))
	e.bool(r.Done)
	e.uint(r.Next)
	return e
}

// DecodeRecovery decodes the Recovery of that id.
func DecodeRecovery(id string, record []byte) (Recovery, error) {
	var r Recovery
	r.ID = id
	d := newDecoder(record)
	r.CreatedAt = d.time()
	r.Account = d.string()
	r.WebhookID = d.string()
	for range d.uint() {
		if d.failed {
			break
		}
		r.States = append(r.States, webhooks.DeliveryState(d.string()))
	}
	r.From = d.time()
	r.To = d.time()
	r.Recovered = int(d.uint())
	r.Done = d.bool()
	r.Next = d.uint()
	return r, d.err()
}

// EncodeID returns the record of an id alone.
func EncodeID(id string) []byte {
	e := newEncoder(len(id) + 1)
	e.string(id)
	return e
}

// EncodeIDs returns the record of several ids.
func EncodeIDs(ids []string) []byte {
	e := newEncoder(32 * len(ids))
	for _, id := range ids {
		e.string(id)
	}
	return e
}

// DecodeIDs decodes what EncodeIDs returns. Of no record there are none.
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

// DecodeID decodes an id; it is empty if that cannot be done.
func DecodeID(record []byte) string { return newDecoder(record).string() }
