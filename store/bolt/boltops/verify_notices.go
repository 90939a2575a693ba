package boltops

import (
	"bytes"
	"fmt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// noticeOfAccount returns a ref to the notice of a number and account.
func noticeOfAccount(account string, number uint64) ref {
	return ref{schema.Notices, record.NumberKey(number), func(value []byte) bool {
		entry, err := record.DecodeNoticeEntry(value) // a damaged notice has a problem of its own
		return err != nil || entry.Account == account
	}, "there is no notice of that number of the account"}
}

func (v *verifier) notice(k, value []byte) ([]ref, string) {
	entry, err := record.DecodeNoticeEntry(value)
	if err != nil {
		return nil, cannotBeRead
	}
	n, is, err := record.DecodeNotice(entry.Account, entry.ID, entry.Notice)
	switch {
	case err != nil || entry.ID == "":
		return nil, cannotBeRead
	case is != number(k):
		return nil, "has another number"
	case entry.Before >= is || entry.BeforeOfTarget >= is:
		return nil, "back-link does not point to an earlier entry"
	case v.isErasing(entry.Account):
		return nil, ""
	}
	ofAccount, ofTarget := record.NoticesOf(entry.Account), record.NoticesOfTarget(entry.Account, n.Target)
	leadsHere := func(head []byte) bool {
		last, greatest := record.DecodeNoticeHead(head)
		return last >= is && greatest >= entry.ID
	}
	refs := []ref{{schema.NoticeHeads, ofAccount, leadsHere, "audit_heads does not lead to it"}, {schema.NoticeHeads, ofTarget, leadsHere, "audit_heads does not lead to it"}}
	if n.Routine() {
		refs = append(refs, ref{bucket: schema.NoticesRoutine, key: routineKey(entry.Account, is)})
	}
	if problem := v.wrongLink(entry.Before, ofAccount); problem != "" {
		return refs, problem
	}
	return refs, v.wrongLink(entry.BeforeOfTarget, ofTarget)
}

// wrongLink returns the problem if the notice of a number exists, and is not one of the account or target of head.
func (v *verifier) wrongLink(number uint64, head []byte) (problem string) {
	value, ok := v.get(schema.Notices, record.NumberKey(number))
	entry, err := record.DecodeNoticeEntry(value)
	if !ok || value == nil || err != nil {
		return ""
	}
	n, _, err := record.DecodeNotice(entry.Account, entry.ID, entry.Notice)
	of := bytes.Equal(head, record.NoticesOf(n.Account)) || bytes.Equal(head, record.NoticesOfTarget(n.Account, n.Target))
	return unless(err != nil || of, "leads to a notice of another account or target")
}

func (v *verifier) noticeHead(k, value []byte) ([]ref, string) {
	if account, _, ok := split(k); ok && v.isErasing(account) {
		return nil, ""
	}
	last, _ := record.DecodeNoticeHead(value)
	return []ref{{schema.Notices, record.NumberKey(last), nil, "there is no notice of that number"}}, v.wrongLink(last, k)
}

func (v *verifier) noticePending(k, _ []byte) ([]ref, string) {
	at := len(k) - 9
	if k[at] != 0 {
		return nil, "malformed key: want a zero byte after the account"
	}
	return []ref{noticeOfAccount(string(k[:at]), number(k[at+1:]))}, ""
}

// routineKey returns the key of a routine notice, or of the account's count of them if the number is 0.
func routineKey(account string, number uint64) []byte {
	return record.Prefixed(account, string(record.NumberKey(number)))
}

func routineNoticeKey(k []byte) string {
	_, tail, ok := split(k)
	return unless(ok && len(tail) == 8, "malformed key: want an account and number")
}

func (v *verifier) noticeRoutine(k, value []byte) ([]ref, string) {
	account, tail, _ := split(k)
	switch {
	case v.isErasing(account):
		return nil, ""
	case number([]byte(tail)) > 0:
		return []ref{noticeOfAccount(account, number([]byte(tail)))}, unless(len(value) == 16, cannotBeRead)
	}
	counted := uint64(0)
	c := v.tx.Bucket(schema.NoticesRoutine).Cursor()
	for k, _ := c.Seek(routineKey(account, 1)); bytes.HasPrefix(k, record.Prefixed(account, "")); k, _ = c.Next() {
		counted++
	}
	return nil, unless(number(value) == counted, fmt.Sprintf("counts %d notices instead of %d", number(value), counted))
}
