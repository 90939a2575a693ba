package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// noticesLookedAt is how many notices are looked at for a page of a list.
const noticesLookedAt = 10_000

// tell stores a notice, if it is one, whose id is new.
func (b *batch) tell(n notices.Notice) error {
	if n.IsZero() {
		return nil
	}
	return b.appendNotice(n, b.store.clock.Time())
}

// knownNotices are the ids of the notices of targets, by their heads, as far as a step has
// asked for them.
type knownNotices map[string]map[string]bool

// addNotice stores a notice, if it is one, unless its target has one of that id.
func (b *batch) addNotice(n notices.Notice, at time.Time, known knownNotices) (added bool, err error) {
	if n.IsZero() || b.isErasing(n.Account) {
		return false, nil
	}
	head := record.NoticesOfTarget(n.Account, n.Target)
	if _, greatest := record.DecodeNoticeHead(b.Get(bucketNoticeHeads, head)); n.ID <= greatest { // or else it is new
		ids := known[string(head)]
		if ids == nil {
			if ids, err = noticeIDs(b.tx, head); err != nil {
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
	return true, b.appendNotice(n, at)
}

// noticeIDs returns the ids of all notices of a target, whose head is given.
func noticeIDs(tx *bbolt.Tx, head []byte) (map[string]bool, error) {
	ids := make(map[string]bool)
	for number := lastNoticeOf(tx, head); number > 0; {
		entry, err := noticeEntry(tx, number)
		if err != nil {
			return nil, err
		}
		ids[entry.ID] = true
		number = entry.BeforeOfTarget
	}
	return ids, nil
}

// appendNotice stores a notice as the last one of its account and of its target.
func (b *batch) appendNotice(n notices.Notice, at time.Time) error {
	if b.isErasing(n.Account) {
		return nil // it would go, too
	}
	number := lastNotice(b.tx) + 1
	key := record.NumberKey(number)
	ofAccount, ofTarget := record.NoticesOf(n.Account), record.NoticesOfTarget(n.Account, n.Target)
	entry := record.NoticeEntry{
		StoredAt: at.UnixMilli(), Account: n.Account, ID: n.ID, Notice: record.EncodeNotice(&n, number),
		Before: lastNoticeOf(b.tx, ofAccount), BeforeOfTarget: lastNoticeOf(b.tx, ofTarget),
	}
	if err := b.Append(bucketNotices, key, entry.Encode()); err != nil {
		return err
	}
	for _, head := range [][]byte{ofAccount, ofTarget} {
		_, greatest := record.DecodeNoticeHead(b.Get(bucketNoticeHeads, head))
		if err := b.Put(bucketNoticeHeads, head, record.EncodeNoticeHead(number, max(greatest, n.ID))); err != nil {
			return err
		}
	}
	if n.Pending {
		if err := b.Put(bucketNoticesPending, pendingNotice(n.Account, number), []byte{record.Version}); err != nil {
			return err
		}
	}
	return b.linkRoutine(&n, &entry, number)
}

// lastNotice returns the number that was given last.
func lastNotice(tx *bbolt.Tx) uint64 {
	log := tx.Bucket(bucketNotices)
	if last, _ := lastOf(log.Cursor()); len(last) == 8 {
		return max(binary.BigEndian.Uint64(last), log.Sequence())
	}
	return log.Sequence()
}

// lastNoticeOf returns the number of the last notice of an account or target, whose head is
// given; 0: there is none.
func lastNoticeOf(tx *bbolt.Tx, head []byte) uint64 {
	number, _ := record.DecodeNoticeHead(tx.Bucket(bucketNoticeHeads).Get(head))
	return number
}

// pendingNotice returns the key under which a notice stands while it is pending: pending notices
// are in the order of accounts.
func pendingNotice(account string, number uint64) []byte {
	return append(append([]byte(account), 0), record.NumberKey(number)...)
}

// cutPendingNotice takes apart what pendingNotice has made.
func cutPendingNotice(key []byte) (account string, number uint64, ok bool) {
	at := len(key) - 9
	if at < 0 || key[at] != 0 {
		return "", 0, false
	}
	return string(key[:at]), binary.BigEndian.Uint64(key[at+1:]), true
}

func noticeNumber(key []byte) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}

// noticeEntry returns the entry of a number, or the zero entry if there is none: it was purged,
// with those before it.
func noticeEntry(tx *bbolt.Tx, number uint64) (entry record.NoticeEntry, err error) {
	value := tx.Bucket(bucketNotices).Get(record.NumberKey(number))
	if value == nil {
		return entry, nil
	}
	return record.DecodeNoticeEntry(value)
}

// AddNotices implements [notices.Store].
func (s *Store) AddNotices(ctx context.Context, list []notices.Notice) (added int, err error) {
	err = s.writer.Run(ctx, func(b *batch) error {
		added = 0
		known := make(knownNotices)
		for _, n := range list {
			if n.Action == notices.KeyExpiring {
				if key, _, err := keyByID(b.tx, record.Prefixed(n.Account, n.Target.ID)); err != nil || !key.ExpiresAt.Equal(n.Until) {
					continue // it is gone, or was changed
				}
			}
			isNew, err := b.addNotice(n, s.clock.Time(), known)
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

// ListNotices implements [notices.Store]. It follows the notices of the account, or those of the
// target.
func (s *Store) ListNotices(ctx context.Context, account string, query notices.Query) (page notices.Page, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return page, err
	}
	defer s.done(tx, catchFaults(), &err)
	if s.erasing.has(account) {
		return page, nil
	}
	head, ofTarget := record.NoticesOf(account), query.Target.ID != ""
	if ofTarget {
		head = record.NoticesOfTarget(account, query.Target)
	}
	number := lastNoticeOf(tx, head)
	if query.After != "" {
		after, _ := s.cursors.Decode(query.After)
		if number, err = noticeAt(tx, number, after, ofTarget); err != nil {
			return page, err
		}
	}
	for looked := 0; number > 0; looked++ {
		if len(page.Notices) == query.Limit || looked == noticesLookedAt {
			page.Next = s.cursors.Encode(number)
			return page, nil
		}
		entry, err := noticeEntry(tx, number)
		if err != nil {
			return notices.Page{}, err
		}
		if entry.ID == "" {
			return page, nil
		}
		n, err := readNotice(tx, &entry, number)
		if err != nil {
			return notices.Page{}, err
		}
		if n.Account == account && query.Matches(&n) { // the cursor may be of another list
			page.Notices = append(page.Notices, n)
		}
		number = entry.Previous(ofTarget)
	}
	return page, nil
}

// noticeAt returns where a list goes on that begins at number: at after or, if that was removed,
// at the next entry of the list.
func noticeAt(tx *bbolt.Tx, number, after uint64, ofTarget bool) (uint64, error) {
	if after >= number {
		return number, nil
	}
	if entry, err := noticeEntry(tx, after); err != nil || entry.ID != "" {
		return after, err
	}
	for number > after {
		entry, err := noticeEntry(tx, number)
		if err != nil || entry.ID == "" {
			return 0, err
		}
		number = entry.Previous(ofTarget)
	}
	return number, nil
}

// readNotice returns a notice as it is now.
func readNotice(tx *bbolt.Tx, entry *record.NoticeEntry, number uint64) (notices.Notice, error) {
	n, _, err := record.DecodeNotice(entry.Account, entry.ID, entry.Notice)
	n.Pending = n.Pending && tx.Bucket(bucketNoticesPending).Get(pendingNotice(n.Account, number)) != nil
	return n, err
}

// PendingAccounts implements [notices.Store].
func (s *Store) PendingAccounts(ctx context.Context, after string, limit int) (list []string, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	c := tx.Bucket(bucketNoticesPending).Cursor()
	for before := []byte(after); len(list) < limit; {
		before = seekBeyond(c, before, append([]byte(after), 1)) // after all rows of that account
		account, _, ok := cutPendingNotice(before)
		if !ok {
			break
		}
		after = account
		list = append(list, account)
	}
	return list, nil
}

// PendingNotices implements [notices.Store]. One that cannot be read is passed over.
func (s *Store) PendingNotices(ctx context.Context, account string, limit int) (list []notices.Numbered, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	c := tx.Bucket(bucketNoticesPending).Cursor()
	for k, _ := c.Seek(append([]byte(account), 0)); k != nil && len(list) < limit; k, _ = c.Next() {
		of, number, _ := cutPendingNotice(k)
		if of != account {
			break
		}
		entry, unreadable := noticeEntry(tx, number)
		if unreadable != nil || entry.ID == "" {
			continue
		}
		if n, _, unreadable := record.DecodeNotice(entry.Account, entry.ID, entry.Notice); unreadable == nil {
			list = append(list, notices.Numbered{Number: number, Notice: n})
		}
	}
	return list, nil
}

// TakeNotices implements [notices.Store].
func (s *Store) TakeNotices(ctx context.Context, numbers []uint64) error {
	return s.writer.Run(ctx, func(b *batch) error {
		for _, number := range numbers {
			entry, err := noticeEntry(b.tx, number)
			if err != nil {
				continue // it is not among the pending ones
			}
			if err := b.Delete(bucketNoticesPending, pendingNotice(entry.Account, number)); err != nil {
				return err
			}
		}
		return nil
	})
}

// purgeNotices removes notices that were stored before then: the first of the log. Those that were stored under a clock that was
// ahead go once one after them does.
func (s *Store) purgeNotices(b *batch, before time.Time, left *int) error {
	if before.IsZero() {
		return nil
	}
	var old, pending [][]byte // not deleted at once: a cursor skips keys after that
	var entries []record.NoticeEntry
	gone, goneEntries := 0, 0 // of these; the others were stored under a clock that was ahead
	c := b.tx.Bucket(bucketNotices).Cursor()
	for k, value := c.First(); k != nil && gone < *left && len(old) < *left+noticesLookedAt; k, value = c.Next() {
		entry, err := record.DecodeNoticeEntry(value)
		kept := err == nil && entry.StoredAt >= before.UnixMilli()
		if kept && !s.clock.Ahead(time.UnixMilli(entry.StoredAt)) {
			break
		}
		old = append(old, bytes.Clone(k))
		if entry.Notice = bytes.Clone(entry.Notice); err == nil {
			entries = append(entries, entry)
			pending = append(pending, pendingNotice(entry.Account, noticeNumber(k)))
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
	// Their numbers are not given again: one that was told may be taken later.
	if err := b.tx.Bucket(bucketNotices).SetSequence(lastNotice(b.tx)); err != nil {
		return err
	}
	pending = pending[:goneEntries]
	last := binary.BigEndian.Uint64(old[len(old)-1])
	for _, entry := range entries {
		if err := forgetHeads(b, &entry, last); err != nil {
			return err
		}
	}
	if err := b.DeleteAll(bucketNotices, old); err != nil {
		return err
	}
	if err := b.purgeRoutine(pending); err != nil {
		return err
	}
	slices.SortFunc(pending, bytes.Compare)
	return b.DeleteAll(bucketNoticesPending, pending)
}

// forgetHeads removes what leads to the notices of an entry's account and target, if all are
// removed up to that number.
func forgetHeads(b *batch, entry *record.NoticeEntry, last uint64) error {
	n, _, _ := record.DecodeNotice(entry.Account, entry.ID, entry.Notice) // or the account's at least
	for _, head := range [][]byte{record.NoticesOf(entry.Account), record.NoticesOfTarget(entry.Account, n.Target)} {
		if lastNoticeOf(b.tx, head) > last {
			continue
		}
		if err := b.Delete(bucketNoticeHeads, head); err != nil {
			return err
		}
	}
	return nil
}

// A noticeLease is the lease for telling of notices: one process uses the file.
type noticeLease struct {
	mu     sync.Mutex
	holder string
	until  time.Time
}

// LeaseNotices implements [notices.Store].
func (s *Store) LeaseNotices(ctx context.Context, holder string, ttl time.Duration) (held bool, err error) {
	tx, err := s.view(ctx) // says whether the store is closed
	if err != nil {
		return false, err
	}
	_ = tx.Rollback()
	l := &s.noticeLease
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.holder != holder && now.Before(l.until) {
		return false, nil
	}
	l.holder, l.until = holder, now.Add(ttl)
	return ttl > 0, nil
}
