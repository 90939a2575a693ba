package bolt

import (
	"bytes"
	"encoding/binary"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// routineLinks are the numbers of the account's and the target's notices that come after a
// routine one, 0 for none. Entries of the log lead backwards only: to remove one from the middle
// of both lists, the entries after it have to be found.
type routineLinks struct{ after, afterOfTarget uint64 }

func decodeRoutineLinks(row []byte) (l routineLinks, ok bool) {
	if len(row) != 16 {
		return l, false
	}
	return routineLinks{binary.BigEndian.Uint64(row), binary.BigEndian.Uint64(row[8:])}, true
}

func (l routineLinks) encode() []byte {
	return append(record.NumberKey(l.after), record.NumberKey(l.afterOfTarget)...)
}

// routineNotice returns the key in bucketNoticesRoutine of a notice, or of the account's count
// if the number is 0.
func routineNotice(account string, number uint64) []byte {
	return record.Prefixed(account, string(record.NumberKey(number)))
}

// isRoutineOf reports whether a key is one that routineNotice returns for the account.
func isRoutineOf(key []byte, account string) bool {
	return bytes.HasPrefix(key, record.Prefixed(account, ""))
}

// linkRoutine links the notices before a new one to it, and counts it if it is routine. Then it
// removes the account's oldest routine notice if there are too many.
func (b *batch) linkRoutine(n *notices.Notice, entry *record.NoticeEntry, number uint64) error {
	for _, ofTarget := range []bool{false, true} {
		key := routineNotice(n.Account, entry.Previous(ofTarget))
		links, ok := decodeRoutineLinks(b.Get(bucketNoticesRoutine, key))
		if !ok {
			continue // it is not routine, or was purged
		}
		if ofTarget {
			links.afterOfTarget = number
		} else {
			links.after = number
		}
		if err := b.Put(bucketNoticesRoutine, key, links.encode()); err != nil {
			return err
		}
	}
	if !n.Routine() {
		return nil
	}
	if err := b.Put(bucketNoticesRoutine, routineNotice(n.Account, number), routineLinks{}.encode()); err != nil {
		return err
	}
	count, err := b.countRoutine(n.Account, 1)
	if err != nil || count <= notices.MaxRoutine {
		return err
	}
	return b.removeRoutine(n.Account)
}

// countRoutine changes how many routine notices the account has.
func (b *batch) countRoutine(account string, change int) (count int, err error) {
	key := routineNotice(account, 0)
	count = int(noticeNumber(b.Get(bucketNoticesRoutine, key))) + change
	if count <= 0 {
		return 0, b.Delete(bucketNoticesRoutine, key)
	}
	return count, b.Put(bucketNoticesRoutine, key, record.NumberKey(uint64(count)))
}

// removeRoutine removes the account's oldest routine notice. No notice before it is routine, so
// none has links to it. One that cannot be read stays in the log until it is purged.
func (b *batch) removeRoutine(account string) error {
	k, row := b.tx.Bucket(bucketNoticesRoutine).Cursor().Seek(routineNotice(account, 1))
	if !isRoutineOf(k, account) {
		return nil
	}
	key, number := bytes.Clone(k), noticeNumber(k[len(k)-8:])
	links, _ := decodeRoutineLinks(row)
	entry, unreadable := noticeEntry(b.tx, number)
	if unreadable == nil && entry.ID != "" {
		if err := b.unlinkNotice(&entry, number, links); err != nil {
			return err
		}
	}
	if err := b.Delete(bucketNoticesPending, pendingNotice(account, number)); err != nil {
		return err
	}
	if err := b.Delete(bucketNoticesRoutine, key); err != nil {
		return err
	}
	_, err := b.countRoutine(account, -1)
	return err
}

// unlinkNotice removes an entry from the log and from the lists of its account and its target.
func (b *batch) unlinkNotice(entry *record.NoticeEntry, number uint64, links routineLinks) error {
	n, _, err := record.DecodeNotice(entry.Account, entry.ID, entry.Notice)
	if err != nil {
		return nil //nolint:nilerr // it stays until it is purged
	}
	before, beforeOfTarget := entry.Before, entry.BeforeOfTarget
	for _, after := range []uint64{links.after, links.afterOfTarget} {
		next, err := noticeEntry(b.tx, after)
		if err != nil || next.ID == "" {
			continue
		}
		if next.Before == number {
			next.Before = before
		}
		if next.BeforeOfTarget == number {
			next.BeforeOfTarget = beforeOfTarget
		}
		if err := b.Put(bucketNotices, record.NumberKey(after), next.Encode()); err != nil {
			return err
		}
	}
	head := record.NoticesOfTarget(n.Account, n.Target)
	if last, greatest := record.DecodeNoticeHead(b.Get(bucketNoticeHeads, head)); last == number {
		var now []byte
		if b.Get(bucketNotices, record.NumberKey(beforeOfTarget)) != nil {
			now = record.EncodeNoticeHead(beforeOfTarget, greatest)
		}
		if err := b.PutOrDelete(bucketNoticeHeads, head, now); err != nil {
			return err
		}
	}
	return b.Delete(bucketNotices, record.NumberKey(number))
}

// purgeRoutine forgets notices that are purged, which are the first of their accounts. They are
// given as pendingNotice returns them.
func (b *batch) purgeRoutine(purged [][]byte) error {
	for _, pending := range purged {
		account, number, _ := cutPendingNotice(pending)
		key := routineNotice(account, number)
		if b.Get(bucketNoticesRoutine, key) == nil {
			continue
		}
		if err := b.Delete(bucketNoticesRoutine, key); err != nil {
			return err
		}
		if _, err := b.countRoutine(account, -1); err != nil {
			return err
		}
	}
	return nil
}
