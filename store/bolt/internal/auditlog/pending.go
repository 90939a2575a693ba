package auditlog

import (
	"iter"
	"math/bits"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// perPendingRow is the number of entries that share a row of schema.AuditPending, at one bit each.
const perPendingRow = 64

// pendingRow returns the key of the row that records whether an entry is pending, and the entry's
// bit in that row. Keys sort by account.
func pendingRow(account string, number uint64) (key []byte, bit uint64) {
	return append(append([]byte(account), 0), record.NumberKey(number/perPendingRow)...), 1 << (number % perPendingRow)
}

// cutPendingRow splits a key made by pendingRow into the account and the first number of the row.
func cutPendingRow(key []byte) (account string, first uint64, ok bool) {
	at := len(key) - 9
	if at < 0 || key[at] != 0 {
		return "", 0, false
	}
	return string(key[:at]), record.Number(key[at+1:]) * perPendingRow, true
}

// DecodePending returns the account and the numbers of the pending entries in a row of
// schema.AuditPending. ok is false if the row is damaged.
func DecodePending(key, value []byte) (account string, numbers iter.Seq[uint64], ok bool) {
	account, first, ok := cutPendingRow(key)
	return account, func(yield func(uint64) bool) {
		for rest := record.Number(value); rest != 0 && yield(first+uint64(bits.TrailingZeros64(rest))); {
			rest &= rest - 1
		}
	}, ok
}

func isPending(tx *bbolt.Tx, account string, number uint64) bool {
	key, bit := pendingRow(account, number)
	return record.Number(tx.Bucket(schema.AuditPending).Get(key))&bit != 0
}

func (s Step) setPending(account string, number uint64, pending bool) error {
	key, bit := pendingRow(account, number)
	old := record.Number(s.Get(schema.AuditPending, key))
	bits := old &^ bit
	if pending {
		bits |= bit
	}
	switch bits {
	case old:
		return nil
	case 0:
		return s.Delete(schema.AuditPending, key)
	}
	return s.Put(schema.AuditPending, key, record.NumberKey(bits))
}

// PendingAccounts returns accounts greater than after that have pending entries, at most limit.
func PendingAccounts(tx *bbolt.Tx, after string, limit int) (list []string) {
	c := tx.Bucket(schema.AuditPending).Cursor()
	for before := []byte(after); len(list) < limit; {
		before = rows.SeekBeyond(c, before, append([]byte(after), 1)) // skips the account's other rows
		account, _, ok := cutPendingRow(before)
		if !ok {
			break
		}
		after = account
		list = append(list, account)
	}
	return list
}

// Pending returns the account's pending entries, at most limit. It skips unreadable entries.
func Pending(tx *bbolt.Tx, account string, limit int) (list []audit.Numbered) {
	for k, value := range rows.WithPrefix(tx.Bucket(schema.AuditPending), append([]byte(account), 0)) {
		of, numbers, _ := DecodePending(k, value)
		if of != account {
			break
		}
		for number := range numbers {
			if len(list) == limit {
				return list
			}
			row, unreadable := entryAt(tx, number)
			if unreadable != nil || row.ID == "" {
				continue
			}
			if n, _, unreadable := record.DecodeAuditEntry(row.Account, row.ID, row.AuditEntry); unreadable == nil {
				list = append(list, audit.Numbered{Number: number, Entry: n})
			}
		}
	}
	return list
}

// Take marks entries as reported.
func (s Step) Take(numbers []uint64) error {
	for _, number := range numbers {
		row, err := entryAt(s.Bolt, number)
		if err != nil {
			continue // Pending did not return it
		}
		if err := s.setPending(row.Account, number, false); err != nil {
			return err
		}
	}
	return nil
}
