package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/bits"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// entriesLookedAt is the maximum number of entries read for one page.
const entriesLookedAt = 10_000

// tell stores an audit entry with a new ID. It ignores a zero entry.
func (b *batch) tell(n audit.Entry) error {
	if n.IsZero() {
		return nil
	}
	return b.appendAuditEntry(n, b.store.clock.Time())
}

// knownAuditEntries caches the IDs of a target's entries, by the key of the target's row.
type knownAuditEntries map[string]map[string]bool

// addAuditEntry stores an audit entry. It skips a zero entry, and an entry whose ID an entry of
// the same target already has.
func (b *batch) addAuditEntry(n audit.Entry, at time.Time, known knownAuditEntries) (added bool, err error) {
	if n.IsZero() || b.isErasing(n.Account) {
		return false, nil
	}
	head := targetRow(b.tx, n.Account, n.Target)
	// An ID greater than all the target's IDs is new. Any ID is new if the target's last entry was
	// purged or is unreadable.
	if last, _ := auditRecord(b.tx, lastAuditEntryOf(b.tx, head)); n.ID <= last.GreatestID() {
		ids := known[string(head)]
		if ids == nil {
			if ids, err = entryIDs(b.tx, head); err != nil {
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
	return true, b.appendAuditEntry(n, at)
}

// entryIDs returns the IDs of all entries of a target. head is the key of the target's row.
func entryIDs(tx *bbolt.Tx, head []byte) (map[string]bool, error) {
	ids := make(map[string]bool)
	for number := lastAuditEntryOf(tx, head); number > 0; {
		row, err := auditRecord(tx, number)
		if err != nil {
			return nil, err
		}
		ids[row.ID] = true
		number = row.BeforeOfTarget
	}
	return ids, nil
}

// appendAuditEntry stores an entry as the last one of its account and target.
func (b *batch) appendAuditEntry(n audit.Entry, at time.Time) error {
	if b.isErasing(n.Account) {
		return nil // the erasure would remove it
	}
	number := lastAuditEntry(b.tx) + 1
	key := record.NumberKey(number)
	ofAccount, ofTarget := record.AuditEntriesOf(n.Account), targetRow(b.tx, n.Account, n.Target)
	row := record.AuditRecord{
		StoredAt: at.UnixMilli(), Account: n.Account, ID: n.ID, AuditEntry: record.EncodeAuditEntry(&n, number),
		Before: lastAuditEntryOf(b.tx, ofAccount), BeforeOfTarget: lastAuditEntryOf(b.tx, ofTarget),
	}
	if before, _ := auditRecord(b.tx, row.BeforeOfTarget); before.GreatestID() > n.ID {
		row.EarlierID = before.GreatestID()
	}
	if err := b.Append(bucketAudit, key, row.Encode()); err != nil {
		return err
	}
	for _, head := range [][]byte{ofAccount, ofTarget} {
		if err := b.setLastAuditEntryOf(head, number); err != nil {
			return err
		}
	}
	if n.Pending {
		if err := b.setPending(n.Account, number, true); err != nil {
			return err
		}
	}
	return b.linkRoutine(&n, &row, number)
}

// lastAuditEntry returns the greatest number assigned to an entry so far.
func lastAuditEntry(tx *bbolt.Tx) uint64 {
	log := tx.Bucket(bucketAudit)
	if last, _ := lastOf(log.Cursor()); len(last) == 8 {
		return max(binary.BigEndian.Uint64(last), log.Sequence())
	}
	return log.Sequence()
}

// targetRow returns the key of the row that holds the number of a target's last entry. For an
// existing API key, this is the key's own row, which is written at its creation anyway. For any
// other target, it is a separate row.
func targetRow(tx *bbolt.Tx, account string, target audit.Target) []byte {
	if target.Kind == audit.TargetKey {
		if row := record.AccountKey(account, target.ID); tx.Bucket(bucketAccounts).Get(row) != nil {
			return row
		}
	}
	return record.AuditEntriesOfTarget(account, target)
}

// lastAuditEntryOf returns the number of the last entry of an account or target, or 0 if it has
// none. row is the key of the row of the account or target.
func lastAuditEntryOf(tx *bbolt.Tx, row []byte) uint64 {
	return record.DecodeAccountRow(tx.Bucket(bucketAccounts).Get(row)).Last
}

// setLastAuditEntryOf sets the number of the last entry of an account or target; 0 means none. row
// is the key of the row of the account or target.
func (b *batch) setLastAuditEntryOf(row []byte, number uint64) error {
	value := record.DecodeAccountRow(bytes.Clone(b.Get(bucketAccounts, row)))
	value.Last = number
	return b.PutOrDelete(bucketAccounts, row, value.Encode())
}

// perPendingRow is the number of entries that share a row of bucketAuditPending, at one bit each.
const perPendingRow = 64

// pendingRow returns the key of the row that records whether an entry is pending, and the entry's
// bit in that row. Keys are sorted by account.
func pendingRow(account string, number uint64) (key []byte, bit uint64) {
	return append(append([]byte(account), 0), record.NumberKey(number/perPendingRow)...), 1 << (number % perPendingRow)
}

// cutPendingRow splits a key made by pendingRow into the account and the first number of the row.
func cutPendingRow(key []byte) (account string, first uint64, ok bool) {
	at := len(key) - 9
	if at < 0 || key[at] != 0 {
		return "", 0, false
	}
	return string(key[:at]), binary.BigEndian.Uint64(key[at+1:]) * perPendingRow, true
}

func isPending(tx *bbolt.Tx, account string, number uint64) bool {
	key, bit := pendingRow(account, number)
	return entryNumber(tx.Bucket(bucketAuditPending).Get(key))&bit != 0
}

func (b *batch) setPending(account string, number uint64, pending bool) error {
	key, bit := pendingRow(account, number)
	old := entryNumber(b.Get(bucketAuditPending, key))
	bits := old &^ bit
	if pending {
		bits |= bit
	}
	switch bits {
	case old:
		return nil
	case 0:
		return b.Delete(bucketAuditPending, key)
	}
	return b.Put(bucketAuditPending, key, record.NumberKey(bits))
}

func entryNumber(key []byte) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}

// auditRecord returns the entry with that number, or the zero entry if it has been removed. If
// purging removed it, all entries before it are removed, too.
func auditRecord(tx *bbolt.Tx, number uint64) (row record.AuditRecord, err error) {
	value := tx.Bucket(bucketAudit).Get(record.NumberKey(number))
	if value == nil {
		return row, nil
	}
	return record.DecodeAuditRecord(value)
}

// AddAuditEntries implements [audit.Store].
func (s *engine) AddAuditEntries(ctx context.Context, list []audit.Entry) (added int, err error) {
	err = s.writer.Run(ctx, func(b *batch) error {
		added = 0
		known := make(knownAuditEntries)
		for _, n := range list {
			if n.Action == audit.KeyExpiring {
				if key, _, err := keyByID(b.tx, record.AccountKey(n.Account, n.Target.ID)); err != nil || !key.ExpiresAt.Equal(n.Until) {
					continue // the key was deleted or changed
				}
			}
			isNew, err := b.addAuditEntry(n, s.clock.Time(), known)
			if err != nil {
				return err
			}
			if isNew {
				added++
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return added, nil
}

// ListAuditEntries implements [audit.Store]. It follows the links from each entry to the previous
// one of the same target, if the query names a target, or else of the same account.
func (s *engine) ListAuditEntries(ctx context.Context, account string, query audit.Query) (page audit.Page, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return page, err
	}
	defer s.done(tx, catchFaults(), &err)
	if s.erasing.has(account) {
		return page, nil
	}
	head, ofTarget := record.AuditEntriesOf(account), query.Target.ID != ""
	if ofTarget {
		head = targetRow(tx, account, query.Target)
	}
	number := lastAuditEntryOf(tx, head)
	if query.After != "" {
		after, _ := s.cursors.Decode(query.After)
		if number, err = entryAt(tx, number, after, ofTarget); err != nil {
			return page, err
		}
	}
	for looked := 0; number > 0; looked++ {
		if len(page.Entries) == query.Limit || looked == entriesLookedAt {
			page.Next = s.cursors.Encode(number)
			return page, nil
		}
		row, err := auditRecord(tx, number)
		if err != nil {
			return audit.Page{}, err
		}
		if row.ID == "" {
			return page, nil
		}
		n, err := readAuditEntry(tx, &row, number)
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

// entryAt returns the entry at which to resume a list that begins at number: the entry after or,
// if that has been removed, the next entry of the list.
func entryAt(tx *bbolt.Tx, number, after uint64, ofTarget bool) (uint64, error) {
	if after >= number {
		return number, nil
	}
	if row, err := auditRecord(tx, after); err != nil || row.ID != "" {
		return after, err
	}
	for number > after {
		row, err := auditRecord(tx, number)
		if err != nil || row.ID == "" {
			return 0, err
		}
		number = row.Previous(ofTarget)
	}
	return number, nil
}

// readAuditEntry decodes an entry and sets Pending to its current value.
func readAuditEntry(tx *bbolt.Tx, row *record.AuditRecord, number uint64) (audit.Entry, error) {
	n, _, err := record.DecodeAuditEntry(row.Account, row.ID, row.AuditEntry)
	n.Pending = n.Pending && isPending(tx, n.Account, number)
	return n, err
}

// PendingAccounts implements [audit.Store].
func (s *engine) PendingAccounts(ctx context.Context, after string, limit int) (list []string, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	c := tx.Bucket(bucketAuditPending).Cursor()
	for before := []byte(after); len(list) < limit; {
		before = seekBeyond(c, before, append([]byte(after), 1)) // skips the account's other rows
		account, _, ok := cutPendingRow(before)
		if !ok {
			break
		}
		after = account
		list = append(list, account)
	}
	return list, nil
}

// PendingAuditEntries implements [audit.Store]. It skips unreadable entries.
func (s *engine) PendingAuditEntries(ctx context.Context, account string, limit int) (list []audit.Numbered, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	c := tx.Bucket(bucketAuditPending).Cursor()
	for k, value := c.Seek(append([]byte(account), 0)); k != nil; k, value = c.Next() {
		of, first, _ := cutPendingRow(k)
		if of != account {
			break
		}
		for rest := entryNumber(value); rest != 0; rest &= rest - 1 {
			if len(list) == limit {
				return list, nil
			}
			number := first + uint64(bits.TrailingZeros64(rest))
			row, unreadable := auditRecord(tx, number)
			if unreadable != nil || row.ID == "" {
				continue
			}
			if n, _, unreadable := record.DecodeAuditEntry(row.Account, row.ID, row.AuditEntry); unreadable == nil {
				list = append(list, audit.Numbered{Number: number, Entry: n})
			}
		}
	}
	return list, nil
}

// TakeAuditEntries implements [audit.Store].
func (s *engine) TakeAuditEntries(ctx context.Context, numbers []uint64) error {
	return s.writer.Run(ctx, func(b *batch) error {
		for _, number := range numbers {
			row, err := auditRecord(b.tx, number)
			if err != nil {
				continue // PendingAuditEntries did not return it
			}
			if err := b.setPending(row.Account, number, false); err != nil {
				return err
			}
		}
		return nil
	})
}

// purgeAuditEntries removes entries stored before the given time, from the beginning of the log.
// An entry stored while the clock was ahead has a later time; it is removed together with an old
// entry that follows it.
func (s *engine) purgeAuditEntries(b *batch, before time.Time, left *int) error {
	if before.IsZero() {
		return nil
	}
	var old [][]byte // deleted after the loop: a cursor skips keys after a deletion
	var rows []numberedRecord
	// gone and goneEntries are how much of old and rows to remove: the rest were stored while the
	// clock was ahead.
	gone, goneEntries := 0, 0
	c := b.tx.Bucket(bucketAudit).Cursor()
	for k, value := c.First(); k != nil && gone < *left && len(old) < *left+entriesLookedAt; k, value = c.Next() {
		row, err := record.DecodeAuditRecord(value)
		kept := err == nil && row.StoredAt >= before.UnixMilli()
		if kept && !s.clock.Ahead(time.UnixMilli(row.StoredAt)) {
			break
		}
		old = append(old, bytes.Clone(k))
		if row.AuditEntry = bytes.Clone(row.AuditEntry); err == nil {
			rows = append(rows, numberedRecord{row, entryNumber(k)})
		}
		if !kept {
			gone, goneEntries = len(old), len(rows)
		}
	}
	old, rows = old[:gone], rows[:goneEntries]
	*left -= gone
	if len(old) == 0 {
		return nil
	}
	// Never reuse a number: a reporter that has read an entry marks it as reported later, by
	// number.
	if err := b.tx.Bucket(bucketAudit).SetSequence(lastAuditEntry(b.tx)); err != nil {
		return err
	}
	last := binary.BigEndian.Uint64(old[len(old)-1])
	for i := range rows {
		if err := forgetLast(b, &rows[i].AuditRecord, last); err != nil {
			return err
		}
		if err := b.setPending(rows[i].Account, rows[i].number, false); err != nil {
			return err
		}
		if err := b.purgeRoutine(rows[i].Account, rows[i].number); err != nil {
			return err
		}
	}
	return b.DeleteAll(bucketAudit, old)
}

// A numberedRecord is an entry of the log and its number.
type numberedRecord struct {
	record.AuditRecord
	number uint64
}

// forgetLast records that the account and the target of row have no last entry, if all their
// entries up to number last are being removed.
func forgetLast(b *batch, row *record.AuditRecord, last uint64) error {
	// If the entry is unreadable, this updates at least the account.
	n, _, _ := record.DecodeAuditEntry(row.Account, row.ID, row.AuditEntry)
	for _, head := range [][]byte{record.AuditEntriesOf(row.Account), targetRow(b.tx, row.Account, n.Target)} {
		if number := lastAuditEntryOf(b.tx, head); number == 0 || number > last {
			continue
		}
		if err := b.setLastAuditEntryOf(head, 0); err != nil {
			return err
		}
	}
	return nil
}

// An auditLease is the lease for reporting entries. It is kept in memory, because only one process
// uses the file.
type auditLease struct {
	mu     sync.Mutex
	holder string
	until  time.Time
}

// LeaseAudit implements [audit.Store].
func (s *engine) LeaseAudit(ctx context.Context, holder string, ttl time.Duration) (held bool, err error) {
	tx, err := s.view(ctx) // fails if the store is closed
	if err != nil {
		return false, err
	}
	_ = tx.Rollback()
	l := &s.auditLease
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.holder != holder && now.Before(l.until) {
		return false, nil
	}
	l.holder, l.until = holder, now.Add(ttl)
	return ttl > 0, nil
}
