package auditlog

import (
	"bytes"
	"encoding/binary"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// routineLinks holds the numbers of the entries that follow a routine entry in the lists of its
// account and of its target; 0 means none. Records in the log link only backwards, but removing an
// entry from the middle of both lists requires the entries after it.
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

// RoutineKey returns the key of an entry in schema.AuditRoutine. For number 0, it returns the key
// of the row that counts the account's routine entries.
func RoutineKey(account string, number uint64) []byte {
	return record.Prefixed(account, string(record.NumberKey(number)))
}

// linkRoutine links the previous routine entries of the account and target to a new entry. If the
// new entry is routine, linkRoutine counts it, and removes the account's oldest routine entry once
// there are more than audit.MaxRoutine.
func (s Step) linkRoutine(n *audit.Entry, item *record.AuditRecord, number uint64) error {
	for _, ofTarget := range []bool{false, true} {
		key := RoutineKey(n.Account, item.Previous(ofTarget))
		links, ok := decodeRoutineLinks(s.Get(schema.AuditRoutine, key))
		if !ok {
			continue // the previous entry is not routine, or was purged
		}
		if ofTarget {
			links.afterOfTarget = number
		} else {
			links.after = number
		}
		if err := s.Put(schema.AuditRoutine, key, links.encode()); err != nil {
			return err
		}
	}
	if !n.Routine() {
		return nil
	}
	if err := s.Put(schema.AuditRoutine, RoutineKey(n.Account, number), routineLinks{}.encode()); err != nil {
		return err
	}
	count, err := s.countRoutine(n.Account, 1)
	if err != nil || count <= audit.MaxRoutine {
		return err
	}
	return s.removeRoutine(n.Account)
}

// countRoutine adds change to the number of the account's routine entries.
func (s Step) countRoutine(account string, change int) (count int, err error) {
	key := RoutineKey(account, 0)
	count = int(record.Number(s.Get(schema.AuditRoutine, key))) + change
	if count <= 0 {
		return 0, s.Delete(schema.AuditRoutine, key)
	}
	return count, s.Put(schema.AuditRoutine, key, record.NumberKey(uint64(count)))
}

// removeRoutine removes the account's oldest routine entry. No other row of schema.AuditRoutine
// links to it, because all other routine entries are later. An unreadable entry stays in the log
// until it is purged.
func (s Step) removeRoutine(account string) error {
	k, row := s.Bolt.Bucket(schema.AuditRoutine).Cursor().Seek(RoutineKey(account, 1))
	if !bytes.HasPrefix(k, record.Prefixed(account, "")) {
		return nil
	}
	key, number := bytes.Clone(k), record.Number(k[len(k)-8:])
	links, _ := decodeRoutineLinks(row)
	item, unreadable := entryAt(s.Bolt, number)
	if unreadable == nil && item.ID != "" {
		if err := s.unlink(&item, number, links); err != nil {
			return err
		}
	}
	if err := s.setPending(account, number, false); err != nil {
		return err
	}
	if err := s.Delete(schema.AuditRoutine, key); err != nil {
		return err
	}
	_, err := s.countRoutine(account, -1)
	return err
}

// unlink removes an entry from the log and from the lists of its account and target. An
// unreadable entry stays.
func (s Step) unlink(item *record.AuditRecord, number uint64, links routineLinks) error {
	n, _, err := record.DecodeAuditEntry(item.Account, item.ID, item.AuditEntry)
	if err != nil {
		return nil //nolint:nilerr // it stays until it is purged
	}
	before, beforeOfTarget := item.Before, item.BeforeOfTarget
	for _, after := range []uint64{links.after, links.afterOfTarget} {
		next, err := entryAt(s.Bolt, after)
		if err != nil || next.ID == "" {
			continue
		}
		if next.Before == number {
			next.Before = before
		}
		if next.BeforeOfTarget == number {
			next.BeforeOfTarget = beforeOfTarget
		}
		if err := s.Put(schema.Audit, record.NumberKey(after), next.Encode()); err != nil {
			return err
		}
	}
	if head := TargetRow(s.Bolt, n.Account, n.Target); Last(s.Bolt, head) == number {
		if s.Get(schema.Audit, record.NumberKey(beforeOfTarget)) == nil {
			beforeOfTarget = 0 // purged
		}
		if err := s.SetLast(head, beforeOfTarget); err != nil {
			return err
		}
	}
	return s.Delete(schema.Audit, record.NumberKey(number))
}

// purgeRoutine removes the schema.AuditRoutine row of an entry that is being purged.
func (s Step) purgeRoutine(account string, number uint64) error {
	key := RoutineKey(account, number)
	if s.Get(schema.AuditRoutine, key) == nil {
		return nil
	}
	if err := s.Delete(schema.AuditRoutine, key); err != nil {
		return err
	}
	_, err := s.countRoutine(account, -1)
	return err
}
