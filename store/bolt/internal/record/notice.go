package record

import (
	"github.com/storageapi/storageapi/notices"
)

// EncodeNotice returns the record of a notice, which does not repeat the Account and the ID
// that it stands under. number is the one that it was given.
func EncodeNotice(n *notices.Notice, number uint64) []byte {
	e := newEncoder(160)
	e.uint(number)
	e.bool(n.Pending)
	e.time(n.At)
	e.string(string(n.Action))
	e.string(string(n.Target.Kind))
	e.string(n.Target.ID)
	e.string(string(n.Actor.Kind))
	e.string(n.Actor.ID)
	e.uint(uint64(len(n.Changed)))
	for _, field := range n.Changed {
		e.string(field)
	}
	e.string(n.RequestID)
	e.string(n.ClientAddress)
	e.string(n.Object)
	e.string(n.Reason)
	e.time(n.Since)
	e.time(n.Until)
	return e
}

// DecodeNotice decodes the notice that stands under that account and id. Its Pending says
// whether it was when it was stored.
func DecodeNotice(account, id string, record []byte) (n notices.Notice, number uint64, err error) {
	d := newDecoder(record)
	n.Account, n.ID = account, id
	number = d.uint()
	n.Pending = d.bool()
	n.At = d.time()
	n.Action = notices.Action(d.string())
	n.Target.Kind = notices.TargetKind(d.string())
	n.Target.ID = d.string()
	n.Actor.Kind = notices.ActorKind(d.string())
	n.Actor.ID = d.string()
	for range d.uint() {
		if d.failed {
			break
		}
		n.Changed = append(n.Changed, d.string())
	}
	n.RequestID = d.string()
	n.ClientAddress = d.string()
	n.Object = d.string()
	n.Reason = d.string()
	n.Since = d.time()
	n.Until = d.time()
	d.fields(nil)
	return n, number, d.err()
}

// EncodeNoticeOrder returns the row of a notice's number: when it was stored, and the row of
// its record.
func EncodeNoticeOrder(storedAt int64, row []byte) []byte {
	e := newEncoder(10 + len(row))
	e.int(storedAt)
	e.raw(row)
	return e
}

// DecodeNoticeOrder returns what EncodeNoticeOrder was given.
func DecodeNoticeOrder(record []byte) (storedAt int64, row []byte, err error) {
	d := newDecoder(record)
	storedAt = d.int()
	return storedAt, d.rest, d.err()
}
