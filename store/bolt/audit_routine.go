package bolt

import (
	"bytes"
	"encoding/binary"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// routineLinks are the numbers of the next entries of the same account and of the same target
// after a routine entry, or 0. Records in the log link backwards only, but removing an entry from
// the middle of both lists requires the entries after it.
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

// routineAuditEntry returns the key of an entry in bucketAuditRoutine. For number 0, it returns
// the key of the row that counts the account's routine entries.
func routineAuditEntry(account string, number uint64) []byte {
	return record.Prefixed(account, string(record.NumberKey(number)))
}

// isRoutineOf reports whether key belongs to the account in bucketAuditRoutine.
func isRoutineOf(key []byte, account string) bool {
	return bytes.HasPrefix(key, record.Prefixed(account, ""))
}

// linkRoutine links the previous routine entries of the account and target to a new entry. If the
// new entry is routine, linkRoutine counts it, and removes the account's oldest routine entry once
// there are more than audit.MaxRoutine.
func (b *batch) linkRoutine(n *audit.Entry, item *record.AuditRecord, number uint64) error {
	for _, ofTarget := range []bool{false, true} {
		key := routineAuditEntry(n.Account, item.Previous(ofTarget))
		links, ok := decodeRoutineLinks(b.Get(bucketAuditRoutine, key))
		if !ok {
			continue // the previous entry is not routine, or was purged
		}
		if ofTarget {
			links.afterOfTarget = number
		} else {
			links.after = number
		}
		if err := b.Put(bucketAuditRoutine, key, links.encode()); err != nil {
			return err
		}
	}
	if !n.Routine() {
		return nil
	}
	if err := b.Put(bucketAuditRoutine, routineAuditEntry(n.Account, number), routineLinks{}.encode()); err != nil {
		return err
	}
	count, err := b.countRoutine(n.Account, 1)
	if err != nil || count <= audit.MaxRoutine {
		return err
	}
	return b.removeRoutine(n.Account)
}

// countRoutine adds change to the number of the account's routine entries.
func (b *batch) countRoutine(account string, change int) (count int, err error) {
	key := routineAuditEntry(account, 0)
	count = int(entryNumber(b.Get(bucketAuditRoutine, key))) + change
	if count <= 0 {
		return 0, b.Delete(bucketAuditRoutine, key)
	}
	return count, b.Put(bucketAuditRoutine, key, record.NumberKey(uint64(count)))
}

// removeRoutine removes the account's oldest routine entry. No other row of
// bucketAuditRoutine links to it, because all other routine entries are later. An unreadable entry
// stays in the log until it is purged.
func (b *batch) removeRoutine(account string) error {
	k, row := b.tx.Bucket(bucketAuditRoutine).Cursor().Seek(routineAuditEntry(account, 1))
	if !isRoutineOf(k, account) {
		return nil
	}
	key, number := bytes.Clone(k), entryNumber(k[len(k)-8:])
	links, _ := decodeRoutineLinks(row)
	item, unreadable := auditRecord(b.tx, number)
	if unreadable == nil && item.ID != "" {
		if err := b.unlinkAuditEntry(&item, number, links); err != nil {
			return err
		}
	}
	if err := b.setPending(account, number, false); err != nil {
		return err
	}
	if err := b.Delete(bucketAuditRoutine, key); err != nil {
		return err
	}
	_, err := b.countRoutine(account, -1)
	return err
}

// unlinkAuditEntry removes an entry from the log and from the lists of its account and target. An
// unreadable entry stays.
func (b *batch) unlinkAuditEntry(item *record.AuditRecord, number uint64, links routineLinks) error {
	n, _, err := record.DecodeAuditEntry(item.Account, item.ID, item.AuditEntry)
	if err != nil {
		return nil //nolint:nilerr // it stays until it is purged
	}
	before, beforeOfTarget := item.Before, item.BeforeOfTarget
	for _, after := range []uint64{links.after, links.afterOfTarget} {
		next, err := auditRecord(b.tx, after)
		if err != nil || next.ID == "" {
			continue
		}
		if next.Before == number {
			next.Before = before
		}
		if next.BeforeOfTarget == number {
			next.BeforeOfTarget = beforeOfTarget
		}
		if err := b.Put(bucketAudit, record.NumberKey(after), next.Encode()); err != nil {
			return err
		}
	}
	if head := targetRow(b.tx, n.Account, n.Target); lastAuditEntryOf(b.tx, head) == number {
		if b.Get(bucketAudit, record.NumberKey(beforeOfTarget)) == nil {
			beforeOfTarget = 0 // purged
		}
		if err := b.setLastAuditEntryOf(head, beforeOfTarget); err != nil {
			return err
		}
	}
	return b.Delete(bucketAudit, record.NumberKey(number))
}

// purgeRoutine removes the row in bucketAuditRoutine of an entry that is being purged.
func (b *batch) purgeRoutine(account string, number uint64) error {
	key := routineAuditEntry(account, number)
	if b.Get(bucketAuditRoutine, key) == nil {
		return nil
	}
	if err := b.Delete(bucketAuditRoutine, key); err != nil {
		return err
	}
	_, err := b.countRoutine(account, -1)
	return err
}
