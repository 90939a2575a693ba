package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// entriesLookedAt is the maximum number of entries read for a page of a list.
const entriesLookedAt = 10_000

// tell stores an entry with a new ID; a zero entry is ignored.
func (b *batch) tell(n audit.Entry) error {
	if n.IsZero() {
		return nil
	}
	return b.appendAuditEntry(n, b.store.clock.Time())
}

// knownAuditEntries caches the IDs of entries by the head of their target.
type knownAuditEntries map[string]map[string]bool

// addAuditEntry stores an entry unless it is zero, or its target has an entry of the same ID.
func (b *batch) addAuditEntry(n audit.Entry, at time.Time, known knownAuditEntries) (added bool, err error) {
	if n.IsZero() || b.isErasing(n.Account) {
		return false, nil
	}
	head := record.AuditEntriesOfTarget(n.Account, n.Target)
	// Greater IDs are new.
	if _, greatest := record.DecodeAuditEntryHead(b.Get(bucketAuditHeads, head)); n.ID <= greatest {
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

// entryIDs returns the IDs of all entries of the target with that head.
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
	ofAccount, ofTarget := record.AuditEntriesOf(n.Account), record.AuditEntriesOfTarget(n.Account, n.Target)
	row := record.AuditRecord{
		StoredAt: at.UnixMilli(), Account: n.Account, ID: n.ID, AuditEntry: record.EncodeAuditEntry(&n, number),
		Before: lastAuditEntryOf(b.tx, ofAccount), BeforeOfTarget: lastAuditEntryOf(b.tx, ofTarget),
	}
	if err := b.Append(bucketAudit, key, row.Encode()); err != nil {
		return err
	}
	for _, head := range [][]byte{ofAccount, ofTarget} {
		_, greatest := record.DecodeAuditEntryHead(b.Get(bucketAuditHeads, head))
		if err := b.Put(bucketAuditHeads, head, record.EncodeAuditEntryHead(number, max(greatest, n.ID))); err != nil {
			return err
		}
	}
	if n.Pending {
		if err := b.Put(bucketAuditPending, pendingAuditEntry(n.Account, number), []byte{record.Version}); err != nil {
			return err
		}
	}
	return b.linkRoutine(&n, &row, number)
}

// lastAuditEntry returns the last number assigned.
func lastAuditEntry(tx *bbolt.Tx) uint64 {
	log := tx.Bucket(bucketAudit)
	if last, _ := lastOf(log.Cursor()); len(last) == 8 {
		return max(binary.BigEndian.Uint64(last), log.Sequence())
	}
	return log.Sequence()
}

// lastAuditEntryOf returns the number of the last entry of the account or target with that head, or
// 0.
func lastAuditEntryOf(tx *bbolt.Tx, head []byte) uint64 {
	number, _ := record.DecodeAuditEntryHead(tx.Bucket(bucketAuditHeads).Get(head))
	return number
}

// pendingAuditEntry returns the key of a pending entry. Pending entries are sorted by account.
func pendingAuditEntry(account string, number uint64) []byte {
	return append(append([]byte(account), 0), record.NumberKey(number)...)
}

// cutPendingAuditEntry splits a key that pendingAuditEntry made.
func cutPendingAuditEntry(key []byte) (account string, number uint64, ok bool) {
	at := len(key) - 9
	if at < 0 || key[at] != 0 {
		return "", 0, false
	}
	return string(key[:at]), binary.BigEndian.Uint64(key[at+1:]), true
}

func entryNumber(key []byte) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}

// auditRecord returns the entry of a number, or the zero entry if it was removed: purging removes
// all entries before it, too.
func auditRecord(tx *bbolt.Tx, number uint64) (row record.AuditRecord, err error) {
	value := tx.Bucket(bucketAudit).Get(record.NumberKey(number))
	if value == nil {
		return row, nil
	}
	return record.DecodeAuditRecord(value)
}

// AddAuditEntries implements [audit.Store].
func (s *Store) AddAuditEntries(ctx context.Context, list []audit.Entry) (added int, err error) {
	err = s.writer.Run(ctx, func(b *batch) error {
		added = 0
		known := make(knownAuditEntries)
		for _, n := range list {
			if n.Action == audit.KeyExpiring {
				if key, _, err := keyByID(b.tx, record.Prefixed(n.Account, n.Target.ID)); err != nil || !key.ExpiresAt.Equal(n.Until) {
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

// ListAuditEntries implements [audit.Store]. It follows the links of the account's entries, or of
// the target's.
func (s *Store) ListAuditEntries(ctx context.Context, account string, query audit.Query) (page audit.Page, err error) {
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
		head = record.AuditEntriesOfTarget(account, query.Target)
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
		if n.Account == account && query.Matches(&n) { // the cursor may belong to another list
			page.Entries = append(page.Entries, n)
		}
		number = row.Previous(ofTarget)
	}
	return page, nil
}

// entryAt returns where to resume a list that begins at number: at after or, if that was removed,
// at the next entry of the list.
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

// readAuditEntry decodes an entry, with its current Pending.
func readAuditEntry(tx *bbolt.Tx, row *record.AuditRecord, number uint64) (audit.Entry, error) {
	n, _, err := record.DecodeAuditEntry(row.Account, row.ID, row.AuditEntry)
	n.Pending = n.Pending && tx.Bucket(bucketAuditPending).Get(pendingAuditEntry(n.Account, number)) != nil
	return n, err
}

// PendingAccounts implements [audit.Store].
func (s *Store) PendingAccounts(ctx context.Context, after string, limit int) (list []string, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	c := tx.Bucket(bucketAuditPending).Cursor()
	for before := []byte(after); len(list) < limit; {
		before = seekBeyond(c, before, append([]byte(after), 1)) // skips all rows of that account
		account, _, ok := cutPendingAuditEntry(before)
		if !ok {
			break
		}
		after = account
		list = append(list, account)
	}
	return list, nil
}

// PendingAuditEntries implements [audit.Store]. It skips unreadable entries.
func (s *Store) PendingAuditEntries(ctx context.Context, account string, limit int) (list []audit.Numbered, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	c := tx.Bucket(bucketAuditPending).Cursor()
	for k, _ := c.Seek(append([]byte(account), 0)); k != nil && len(list) < limit; k, _ = c.Next() {
		of, number, _ := cutPendingAuditEntry(k)
		if of != account {
			break
		}
		row, unreadable := auditRecord(tx, number)
		if unreadable != nil || row.ID == "" {
			continue
		}
		if n, _, unreadable := record.DecodeAuditEntry(row.Account, row.ID, row.AuditEntry); unreadable == nil {
			list = append(list, audit.Numbered{Number: number, Entry: n})
		}
	}
	return list, nil
}

// TakeAuditEntries implements [audit.Store].
func (s *Store) TakeAuditEntries(ctx context.Context, numbers []uint64) error {
	return s.writer.Run(ctx, func(b *batch) error {
		for _, number := range numbers {
			row, err := auditRecord(b.tx, number)
			if err != nil {
				continue // PendingAuditEntries did not return it
			}
			if err := b.Delete(bucketAuditPending, pendingAuditEntry(row.Account, number)); err != nil {
				return err
			}
		}
		return nil
	})
}

// purgeAuditEntries removes entries stored before the time, from the beginning of the log. An entry
// stored while the clock was ahead is removed along with a later entry.
func (s *Store) purgeAuditEntries(b *batch, before time.Time, left *int) error {
	if before.IsZero() {
		return nil
	}
	var old, pending [][]byte // deleted after the loop: a cursor skips keys after a deletion
	var rows []record.AuditRecord
	// Lengths of old and rows to remove; the rest were stored under a clock that was ahead.
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
			rows = append(rows, row)
			pending = append(pending, pendingAuditEntry(row.Account, entryNumber(k)))
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
	// Numbers are not reused: an entry that was reported may be taken later.
	if err := b.tx.Bucket(bucketAudit).SetSequence(lastAuditEntry(b.tx)); err != nil {
		return err
	}
	pending = pending[:goneEntries]
	last := binary.BigEndian.Uint64(old[len(old)-1])
	for _, row := range rows {
		if err := forgetHeads(b, &row, last); err != nil {
			return err
		}
	}
	if err := b.DeleteAll(bucketAudit, old); err != nil {
		return err
	}
	if err := b.purgeRoutine(pending); err != nil {
		return err
	}
	slices.SortFunc(pending, bytes.Compare)
	return b.DeleteAll(bucketAuditPending, pending)
}

// forgetHeads removes the heads of row's account and target if all their entries up to number last
// are removed.
func forgetHeads(b *batch, row *record.AuditRecord, last uint64) error {
	// On error, at least the account's.
	n, _, _ := record.DecodeAuditEntry(row.Account, row.ID, row.AuditEntry)
	for _, head := range [][]byte{record.AuditEntriesOf(row.Account), record.AuditEntriesOfTarget(row.Account, n.Target)} {
		if lastAuditEntryOf(b.tx, head) > last {
			continue
		}
		if err := b.Delete(bucketAuditHeads, head); err != nil {
			return err
		}
	}
	return nil
}

// An auditLease is the lease for reporting entries. It is in memory, because one process uses the
// file.
type auditLease struct {
	mu     sync.Mutex
	holder string
	until  time.Time
}

// LeaseAudit implements [audit.Store].
func (s *Store) LeaseAudit(ctx context.Context, holder string, ttl time.Duration) (held bool, err error) {
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
