package boltops

import (
	"bytes"
	"fmt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/auditlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// entryOfAccount returns a ref to the entry with that number, which must belong to the account.
func entryOfAccount(account string, number uint64) ref {
	return ref{schema.Audit, record.NumberKey(number), func(value []byte) bool {
		row, err := record.DecodeAuditRecord(value) // a damaged entry is reported separately
		return err != nil || row.Account == account
	}, "no audit entry of the account has this number"}
}

func (v *verifier) entry(k, value []byte) ([]ref, string) {
	row, err := record.DecodeAuditRecord(value)
	if err != nil {
		return nil, cannotBeRead
	}
	n, is, err := record.DecodeAuditEntry(row.Account, row.ID, row.AuditEntry)
	switch {
	case err != nil || row.ID == "":
		return nil, cannotBeRead
	case is != record.Number(k):
		return nil, "number differs from the row's key"
	case row.Before >= is || row.BeforeOfTarget >= is:
		return nil, "back-link does not point to an earlier entry"
	case v.isErasing(row.Account):
		return nil, ""
	}
	leadsHere := func(head []byte) bool { return record.DecodeAccountRow(head).Last >= is }
	var refs []ref
	for _, head := range [][]byte{record.AuditEntriesOf(row.Account), v.targetRow(row.Account, n.Target)} {
		refs = append(refs, ref{schema.Accounts, head, leadsHere, "missing from accounts"})
	}
	if n.Routine() {
		refs = append(refs, ref{bucket: schema.AuditRoutine, key: auditlog.RoutineKey(row.Account, is)})
	}
	if problem := v.wrongLink(row.Before, record.AuditEntriesOf(row.Account)); problem != "" {
		return refs, problem
	}
	before, _ := v.get(schema.Audit, record.NumberKey(row.BeforeOfTarget))
	if earlier, err := record.DecodeAuditRecord(before); before != nil && err == nil && earlier.GreatestID() > row.GreatestID() {
		return refs, "is not the latest entry of its target"
	}
	return refs, v.wrongLink(row.BeforeOfTarget, v.targetRow(row.Account, n.Target))
}

// targetRow returns the key of the row that holds the number of a target's last entry.
func (v *verifier) targetRow(account string, target audit.Target) []byte {
	if v.broken[string(schema.Accounts)] {
		return record.AuditEntriesOfTarget(account, target)
	}
	return auditlog.TargetRow(v.tx, account, target)
}

// wrongLink returns a problem if the entry with that number belongs to another account or target
// than the row with key head. It ignores missing and unreadable entries.
func (v *verifier) wrongLink(number uint64, head []byte) (problem string) {
	value, ok := v.get(schema.Audit, record.NumberKey(number))
	row, err := record.DecodeAuditRecord(value)
	if !ok || value == nil || err != nil {
		return ""
	}
	n, _, err := record.DecodeAuditEntry(row.Account, row.ID, row.AuditEntry)
	of := bytes.Equal(head, record.AuditEntriesOf(n.Account)) || bytes.Equal(head, v.targetRow(n.Account, n.Target))
	return unless(err != nil || of, "points to an audit entry of another account or target")
}

func (v *verifier) entryPending(k, value []byte) (refs []ref, malformed string) {
	account, numbers, ok := auditlog.DecodePending(k, value)
	for n := range numbers {
		refs = append(refs, entryOfAccount(account, n))
	}
	return refs, unless(ok && len(refs) > 0, cannotBeRead)
}

func routineAuditEntryKey(k []byte) string {
	_, tail, ok := split(k)
	return unless(ok && len(tail) == 8, "malformed key: want an account and number")
}

func (v *verifier) entryRoutine(k, value []byte) ([]ref, string) {
	account, tail, _ := split(k)
	switch {
	case v.isErasing(account):
		return nil, ""
	case record.Number([]byte(tail)) > 0:
		return []ref{entryOfAccount(account, record.Number([]byte(tail)))}, unless(len(value) == 16, cannotBeRead)
	}
	counted := rows.Count(v.tx.Bucket(schema.AuditRoutine), record.Prefixed(account, "")) - 1 // without this row
	return nil, unless(record.Number(value) == uint64(counted), fmt.Sprintf("counts %d audit entries instead of %d", record.Number(value), counted))
}
