package auditlog

import (
	"bytes"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// A Step changes the audit trail, in a transaction of the file's writer.
type Step struct{ *groupcommit.Tx }

// TargetRow returns the key of the row that holds the number of a target's last entry. For an
// existing API key, this is the API key's own row, which is written anyway when the API key is
// created. For any other target, it is a separate row.
func TargetRow(tx *bbolt.Tx, account string, target audit.Target) []byte {
	if target.Kind == audit.TargetKey {
		if row := record.AccountKey(account, target.ID); tx.Bucket(schema.Accounts).Get(row) != nil {
			return row
		}
	}
	return record.AuditEntriesOfTarget(account, target)
}

// Last returns the number of the last entry of an account or target, or 0 if it has none. row is
// the key of the row that holds this number.
func Last(tx *bbolt.Tx, row []byte) uint64 {
	return record.DecodeAccountRow(tx.Bucket(schema.Accounts).Get(row)).Last
}

// SetLast sets the number of the last entry of an account or target; 0 means none. row is the key
// of the row of the account or target.
func (s Step) SetLast(row []byte, number uint64) error {
	value := record.DecodeAccountRow(bytes.Clone(s.Get(schema.Accounts, row)))
	value.Last = number
	return s.PutOrDelete(schema.Accounts, row, value.Encode())
}

// lastNumber returns the greatest number assigned to an entry so far.
func lastNumber(tx *bbolt.Tx) uint64 {
	log := tx.Bucket(schema.Audit)
	last, _ := rows.Last(log.Cursor())
	return max(record.Number(last), log.Sequence())
}

// entryAt returns the entry with that number, or the zero entry if it has been removed. If a purge
// removed it, all earlier entries are removed, too.
func entryAt(tx *bbolt.Tx, number uint64) (row record.AuditRecord, err error) {
	value := tx.Bucket(schema.Audit).Get(record.NumberKey(number))
	if value == nil {
		return row, nil
	}
	return record.DecodeAuditRecord(value)
}
