package record

import (
	"encoding/binary"

	"github.com/storageapi/storageapi/notices"
)

// notice encodes the fields of a notice and the number that the store gave it.
func (c coder) notice(n *notices.Notice, given *uint64) {
	number(c, given)
	c.bool(&n.Pending)
	c.time(&n.At)
	text(c, &n.Action)
	text(c, &n.Target.Kind)
	text(c, &n.Target.ID)
	text(c, &n.Actor.Kind)
	text(c, &n.Actor.ID)
	texts(c, &n.Changed)
	text(c, &n.RequestID)
	text(c, &n.ClientAddress)
	text(c, &n.Object)
	text(c, &n.Reason)
	c.time(&n.Since)
	c.time(&n.Until)
}

// EncodeNotice returns the record of a notice with its number. The record omits the Account and ID,
// which are in the row's key.
func EncodeNotice(n *notices.Notice, number uint64) []byte {
	e := newEncoder(160)
	coder{to: &e}.notice(n, &number)
	for i, text := range noticeTexts(n) {
		if *text != "" {
			e.field(uint64(2+2*i), []byte(*text)...)
		}
	}
	return e
}

// noticeTexts returns the fields of a notice that are usually empty, in the order of their tags: 2,
// 4, …
func noticeTexts(n *notices.Notice) []*string {
	return []*string{&n.Target.Name, &n.Target.Hint, &n.Actor.Name, &n.Actor.Hint, &n.Turned}
}

// DecodeNotice decodes the notice stored under the account and ID. Pending has the value that it
// had when the notice was stored.
func DecodeNotice(account, id string, record []byte) (n notices.Notice, number uint64, err error) {
	d := newDecoder(record)
	n.Account, n.ID = account, id
	coder{from: d}.notice(&n, &number)
	texts := noticeTexts(&n)
	d.fields(func(tag uint64, value []byte) bool {
		known := tag >= 2 && tag%2 == 0 && tag <= uint64(2*len(texts))
		if known {
			*texts[tag/2-1] = string(value)
		}
		return known
	})
	return n, number, d.err()
}

// A NoticeEntry is a notice in the log of all notices, stored under its number. It links to the
// previous notice of the same account and to that of the same target.
type NoticeEntry struct {
	StoredAt       int64  // Unix milliseconds
	Before         uint64 // number of the account's previous notice; 0: none
	BeforeOfTarget uint64 // number of the target's previous notice; 0: none
	Account, ID    string
	Notice         []byte // result of EncodeNotice
}

func (n *NoticeEntry) Encode() []byte {
	e := newEncoder(40 + len(n.Account) + len(n.ID) + len(n.Notice))
	e.int(n.StoredAt)
	e.uint(n.Before)
	e.uint(n.BeforeOfTarget)
	e.string(n.Account)
	e.string(n.ID)
	e.raw(n.Notice)
	return e
}

// Previous returns the number of the account's previous notice, or of the target's.
func (n *NoticeEntry) Previous(ofTarget bool) uint64 {
	if ofTarget {
		return n.BeforeOfTarget
	}
	return n.Before
}

// DecodeNoticeEntry decodes an entry. Its Notice shares memory with the record.
func DecodeNoticeEntry(record []byte) (n NoticeEntry, err error) {
	d := newDecoder(record)
	n.StoredAt = d.int()
	n.Before = d.uint()
	n.BeforeOfTarget = d.uint()
	n.Account = d.string()
	n.ID = d.string()
	n.Notice = d.rest
	return n, d.err()
}

// NoticesOf returns the key of the head of an account's notices. It sorts after the heads of the
// account's API keys, whose IDs ascend, so it is usually on the same page as the head of a new key.
func NoticesOf(account string) []byte { return Prefixed(account, "l") }

// NoticesOfTarget returns the key of the head of a target's notices.
func NoticesOfTarget(account string, target notices.Target) []byte {
	return Prefixed(account, string(target.Kind)+":"+target.ID)
}

// EncodeNoticeHead returns a head: the number of the last notice, and the greatest ID of all
// notices so far.
func EncodeNoticeHead(number uint64, greatest string) []byte {
	return append(NumberKey(number), greatest...)
}

// DecodeNoticeHead decodes a head; both results are zero if that fails.
func DecodeNoticeHead(record []byte) (number uint64, greatest string) {
	if len(record) < 8 {
		return 0, ""
	}
	return binary.BigEndian.Uint64(record), string(record[8:])
}
