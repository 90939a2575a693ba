package auditlog

import (
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/cursor"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// maxRead is the maximum number of entries read for one page, or in one step.
const maxRead = 10_000

// List returns a page of entries, newest first. It follows the links to the previous entry of the
// same target if the query names a target, or else of the same account. cursors encodes the
// positions in lists.
func List(tx *bbolt.Tx, cursors cursor.Key, account string, query audit.Query) (page audit.Page, err error) {
	head, ofTarget := record.AuditEntriesOf(account), query.Target.ID != ""
	if ofTarget {
		head = TargetRow(tx, account, query.Target)
	}
	number := Last(tx, head)
	if query.After != "" {
		after, _ := cursors.Decode(query.After)
		if number, err = resume(tx, number, after, ofTarget); err != nil {
			return page, err
		}
	}
	for looked := 0; number > 0; looked++ {
		if len(page.Entries) == query.Limit || looked == maxRead {
			page.Next = cursors.Encode(number)
			return page, nil
		}
		row, err := entryAt(tx, number)
		if err != nil {
			return audit.Page{}, err
		}
		if row.ID == "" {
			return page, nil
		}
		n, err := decode(tx, &row, number)
		if err != nil {
			return audit.Page{}, err
		}
		if n.Account == account && query.Matches(&n) { // the cursor may come from another list
			page.Entries = append(page.Entries, n)
		}
		number = row.Previous(ofTarget)
	}
	return page, nil
}

// resume returns the number at which to resume a list that begins at number. It is the parameter
// after or, if that entry has been removed, the number of the next entry of the list.
func resume(tx *bbolt.Tx, number, after uint64, ofTarget bool) (uint64, error) {
	if after >= number {
		return number, nil
	}
	if row, err := entryAt(tx, after); err != nil || row.ID != "" {
		return after, err
	}
	for number > after {
		row, err := entryAt(tx, number)
		if err != nil || row.ID == "" {
			return 0, err
		}
		number = row.Previous(ofTarget)
	}
	return number, nil
}

// decode decodes an entry and sets Pending to its current value.
func decode(tx *bbolt.Tx, row *record.AuditRecord, number uint64) (audit.Entry, error) {
	n, _, err := record.DecodeAuditEntry(row.Account, row.ID, row.AuditEntry)
	n.Pending = n.Pending && isPending(tx, n.Account, number)
	return n, err
}

// Read decodes a row of the trail. If it returns an error, the entry has only its account and ID,
// as far as they can be read.
func Read(tx *bbolt.Tx, key, value []byte) (n audit.Entry, storedAt time.Time, err error) {
	row, err := record.DecodeAuditRecord(value)
	if err != nil {
		return n, storedAt, err
	}
	if n, err = decode(tx, &row, record.Number(key)); err != nil {
		n = audit.Entry{Account: row.Account, ID: row.ID}
	}
	return n, time.UnixMilli(row.StoredAt).UTC(), err
}
