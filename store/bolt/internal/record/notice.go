package record

import (
	"encoding/binary"

	"github.com/storageapi/storageapi/notices"
)

// notice is the fields of a notice, whose number is the one that it was given.
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

// EncodeNotice returns the record of a notice, which does not repeat the Account and the ID
// that it stands under. number is the one that it was given.
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

// noticeTexts are the fields of a notice that mostly are empty, in the order of their tags: 2, 4, …
func noticeTexts(n *notices.Notice) []*string {
	return []*string{&n.Target.Name, &n.Target.Hint, &n.Actor.Name, &n.Actor.Hint, &n.Turned}
}

// DecodeNotice decodes the notice that stands under that account and id. Its Pending says
// whether it was when it was stored.
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

// A NoticeEntry is a notice in the log of all, under its number. Before it, the log has others
// of the same account and of the same target: each entry names the last of them.
type NoticeEntry struct {
	StoredAt       int64  // Unix milliseconds
	Before         uint64 // number of the account's notice before; 0: none
	BeforeOfTarget uint64 // number of its target's notice before; 0: none
	Account, ID    string
	Notice         []byte // what EncodeNotice returns
}

// Encode returns the record of the entry.
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

// Previous returns the number of the account's notice before, or of its target's.
func (n *NoticeEntry) Previous(ofTarget bool) uint64 {
	if ofTarget {
		return n.BeforeOfTarget
	}
	return n.Before
}

// DecodeNoticeEntry decodes an entry. Its Notice is a part of the record.
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

// NoticesOf returns the key under which the head of an account's notices stands: after those
// of its keys, which ascend, so that a page mostly has it and the one of a new key.
func NoticesOf(account string) []byte { return Prefixed(account, "l") }

// NoticesOfTarget returns the key under which the head of a target's notices stands.
func NoticesOfTarget(account string, target notices.Target) []byte {
	return Prefixed(account, string(target.Kind)+":"+target.ID)
}

// EncodeNoticeHead returns a head: the number of the last notice, and the
// greatest id of all that were.
func EncodeNoticeHead(number uint64, greatest string) []byte {
	return append(NumberKey(number), greatest...)
}

// DecodeNoticeHead returns what EncodeNoticeHead was given, or nothing.
func DecodeNoticeHead(record []byte) (number uint64, greatest string) {
	if len(record) < 8 {
		return 0, ""
	}
	return binary.BigEndian.Uint64(record), string(record[8:])
}
