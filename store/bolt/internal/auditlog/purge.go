package auditlog

import (
	"bytes"
	"slices"
	"time"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Purge removes up to *left entries stored before the given time, from the beginning of the trail,
// and subtracts their number from *left. ahead reports whether a time is in the future. An entry
// that was stored while the clock was ahead is removed as soon as an entry after it is old enough.
func (s Step) Purge(before time.Time, ahead func(time.Time) bool, left *int) error {
	if before.IsZero() {
		return nil
	}
	var old [][]byte // deleted after the loop: a cursor skips keys after a deletion
	var entries []record.AuditRecord
	var numbers []uint64 // of entries
	// gone and goneEntries are the numbers of leading elements of old and entries to remove. The
	// rest were stored while the clock was ahead, and remain.
	gone, goneEntries := 0, 0
	c := s.Bolt.Bucket(schema.Audit).Cursor()
	for k, value := c.First(); k != nil && gone < *left && len(old) < *left+maxRead; k, value = c.Next() {
		row, err := record.DecodeAuditRecord(value)
		kept := err == nil && row.StoredAt >= before.UnixMilli()
		if kept && !ahead(time.UnixMilli(row.StoredAt)) {
			break
		}
		old = append(old, bytes.Clone(k))
		if row.AuditEntry = bytes.Clone(row.AuditEntry); err == nil {
			entries, numbers = append(entries, row), append(numbers, record.Number(k))
		}
		if !kept {
			gone, goneEntries = len(old), len(entries)
		}
	}
	old, entries = old[:gone], entries[:goneEntries]
	*left -= gone
	if len(old) == 0 {
		return nil
	}
	if err := s.keepNumbers(); err != nil {
		return err
	}
	last := record.Number(old[len(old)-1])
	for i := range entries {
		if err := s.forget(&entries[i], numbers[i], last); err != nil {
			return err
		}
	}
	return s.DeleteAll(schema.Audit, old)
}

// keepNumbers ensures that the numbers of removed entries are never used again, because a reporter
// that has read an entry later marks it as reported by its number.
func (s Step) keepNumbers() error {
	return s.Bolt.Bucket(schema.Audit).SetSequence(lastNumber(s.Bolt))
}

// forget removes the references to an entry. All entries up to number last are being removed, so
// the account and the target may end up without a last entry.
func (s Step) forget(row *record.AuditRecord, number, last uint64) error {
	// If the entry is unreadable, this updates at least the account.
	n, _, _ := record.DecodeAuditEntry(row.Account, row.ID, row.AuditEntry)
	for _, head := range [][]byte{record.AuditEntriesOf(row.Account), TargetRow(s.Bolt, row.Account, n.Target)} {
		if is := Last(s.Bolt, head); is == 0 || is > last {
			continue
		}
		if err := s.SetLast(head, 0); err != nil {
			return err
		}
	}
	if err := s.setPending(row.Account, number, false); err != nil {
		return err
	}
	return s.purgeRoutine(row.Account, number)
}

// Erase removes up to limit entries of an account, newest first, and returns the number of removed
// entries. Once no entry is left, it removes up to limit rows that hold the numbers of targets'
// last entries. It keeps the rows of API keys, which hold such numbers, too.
func (s Step) Erase(account string, limit int) (erased int, err error) {
	if err := s.keepNumbers(); err != nil {
		return 0, err
	}
	head := record.AuditEntriesOf(account)
	number := Last(s.Bolt, head)
	var old [][]byte
	for number > 0 && len(old) < limit {
		entry, err := entryAt(s.Bolt, number)
		if err == nil && entry.ID == "" {
			number = 0
			break
		}
		old = append(old, record.NumberKey(number))
		if err := s.setPending(account, number, false); err != nil {
			return 0, err
		}
		number = entry.Before // 0 for an unreadable entry: a purge will remove the earlier entries
	}
	slices.Reverse(old)
	if err := s.DeleteAll(schema.Audit, old); err != nil {
		return 0, err
	}
	if err := s.SetLast(head, number); number > 0 || err != nil {
		return len(old), err
	}
	targets := rows.Keys(s.Bolt.Bucket(schema.Accounts), record.AuditEntriesOfTargets(account), limit)
	return len(old), s.DeleteAll(schema.Accounts, targets)
}
