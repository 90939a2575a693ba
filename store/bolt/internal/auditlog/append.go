package auditlog

import (
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
)

// Append stores an entry as the last entry of its account and target. The entry's ID must be new.
func (s Step) Append(n *audit.Entry, at time.Time) error {
	number := lastNumber(s.Bolt) + 1
	ofAccount, ofTarget := record.AuditEntriesOf(n.Account), TargetRow(s.Bolt, n.Account, n.Target)
	row := record.AuditRecord{
		StoredAt: at.UnixMilli(), Account: n.Account, ID: n.ID, AuditEntry: record.EncodeAuditEntry(n, number),
		Before: Last(s.Bolt, ofAccount), BeforeOfTarget: Last(s.Bolt, ofTarget),
	}
	if before, _ := entryAt(s.Bolt, row.BeforeOfTarget); before.GreatestID() > n.ID {
		row.EarlierID = before.GreatestID()
	}
	if err := s.Tx.Append(schema.Audit, record.NumberKey(number), row.Encode()); err != nil {
		return err
	}
	for _, head := range [][]byte{ofAccount, ofTarget} {
		if err := s.SetLast(head, number); err != nil {
			return err
		}
	}
	if n.Pending {
		if err := s.setPending(n.Account, number, true); err != nil {
			return err
		}
	}
	return s.linkRoutine(n, &row, number)
}

// Known caches the IDs of a target's entries, by the key of the target's row.
type Known map[string]map[string]bool

// Add stores an entry, unless an entry of the same target has its ID.
func (s Step) Add(n *audit.Entry, at time.Time, known Known) (added bool, err error) {
	head := TargetRow(s.Bolt, n.Account, n.Target)
	// An ID greater than all the target's IDs is new. Any ID is new if the target's last entry was
	// purged or is unreadable.
	if last, _ := entryAt(s.Bolt, Last(s.Bolt, head)); n.ID <= last.GreatestID() {
		ids := known[string(head)]
		if ids == nil {
			if ids, err = idsOf(s.Bolt, head); err != nil {
				return false, err
			}
			known[string(head)] = ids
		}
		if ids[n.ID] {
			return false, nil
		}
	}
	if ids := known[string(head)]; ids != nil {
		ids[n.ID] = true
	}
	return true, s.Append(n, at)
}

// idsOf returns the IDs of all entries of a target. head is the key of the target's row.
func idsOf(tx *bbolt.Tx, head []byte) (map[string]bool, error) {
	ids := make(map[string]bool)
	for number := Last(tx, head); number > 0; {
		row, err := entryAt(tx, number)
		if err != nil {
			return nil, err
		}
		ids[row.ID] = true
		number = row.BeforeOfTarget
	}
	return ids, nil
}
