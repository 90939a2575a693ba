package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// noticesLookedAt is how many notices are looked at for a page of a list.
const noticesLookedAt = 10_000

// tell stores a notice, if it is one.
func (b *batch) tell(n notices.Notice) error {
	_, err := b.addNotice(n)
	return err
}

// addNotice stores a notice, if it is one, and reports whether its id is new to the account.
func (b *batch) addNotice(n notices.Notice) (added bool, err error) {
	return b.addNoticeAt(n, time.Now())
}

// addNoticeAt is addNotice of a notice that was stored then.
func (b *batch) addNoticeAt(n notices.Notice, at time.Time) (added bool, err error) {
	if n.IsZero() {
		return false, nil
	}
	row := record.Prefixed(n.Account, n.ID)
	if b.Get(bucketNotices, row) != nil {
		return false, nil
	}
	if b.isErasing(n.Account) {
		return false, nil // it would go, too
	}
	number := lastNotice(b.tx) + 1
	if err := b.Put(bucketNotices, row, record.EncodeNotice(&n, number)); err != nil {
		return false, err
	}
	if err := b.Append(bucketNoticeOrder, record.NumberKey(number), record.EncodeNoticeOrder(at.UnixMilli(), row)); err != nil {
		return false, err
	}
	if n.Pending {
		err = b.Append(bucketNoticesPending, record.NumberKey(number), row)
	}
	return true, err
}

// lastNotice returns the number that was given last.
func lastNotice(tx *bbolt.Tx) uint64 {
	order := tx.Bucket(bucketNoticeOrder)
	if last, _ := lastOf(order.Cursor()); len(last) == 8 {
		return max(binary.BigEndian.Uint64(last), order.Sequence())
	}
	return order.Sequence()
}

// AddNotices implements [notices.Store].
func (s *Store) AddNotices(ctx context.Context, list []notices.Notice) (added int, err error) {
	err = s.writer.Run(ctx, func(b *batch) error {
		added = 0
		for _, n := range list {
			if n.Action == notices.KeyExpiring {
				if key, _, err := keyByID(b.tx, record.Prefixed(n.Account, n.Target.ID)); err != nil || !key.ExpiresAt.Equal(n.Until) {
					continue // it is gone, or was changed
				}
			}
			isNew, err := b.addNotice(n)
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

// ListNotices implements [notices.Store].
func (s *Store) ListNotices(ctx context.Context, account string, query notices.Query) (page notices.Page, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return page, err
	}
	defer s.done(tx, &err)
	if s.erasing.has(account) {
		return page, nil
	}
	looked, last := 0, ""
	descend(tx.Bucket(bucketNotices), record.Prefixed(account, ""), query.After, func(id, value []byte) bool {
		if len(page.Notices) == query.Limit || looked == noticesLookedAt {
			page.Next = last
			return false
		}
		var n notices.Notice
		if n, err = readNotice(tx, account, string(id), value); err != nil {
			return false
		}
		if query.Matches(&n) {
			page.Notices = append(page.Notices, n)
		}
		looked, last = looked+1, n.ID
		return true
	})
	if err != nil {
		return notices.Page{}, err
	}
	return page, nil
}

// readNotice returns a notice as it is now.
func readNotice(tx *bbolt.Tx, account, id string, value []byte) (notices.Notice, error) {
	n, number, err := record.DecodeNotice(account, id, value)
	n.Pending = n.Pending && tx.Bucket(bucketNoticesPending).Get(record.NumberKey(number)) != nil
	return n, err
}

// PendingNotices implements [notices.Store]. One that cannot be read is passed over.
func (s *Store) PendingNotices(ctx context.Context, after uint64, limit int) (list []notices.Numbered, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, &err)
	c := tx.Bucket(bucketNoticesPending).Cursor()
	for k, row := c.Seek(record.NumberKey(after + 1)); k != nil && len(list) < limit; k, row = c.Next() {
		account, id := record.CutPrefixed(row)
		n, number, unreadable := record.DecodeNotice(account, id, tx.Bucket(bucketNotices).Get(row))
		if unreadable == nil && len(k) == 8 && number == binary.BigEndian.Uint64(k) {
			list = append(list, notices.Numbered{Number: number, Notice: n})
		}
	}
	return list, nil
}

// TakeNotices implements [notices.Store].
func (s *Store) TakeNotices(ctx context.Context, numbers []uint64) error {
	return s.writer.Run(ctx, func(b *batch) error {
		for _, number := range numbers {
			if err := b.Delete(bucketNoticesPending, record.NumberKey(number)); err != nil {
				return err
			}
		}
		return nil
	})
}

// purgeNotices removes notices that were stored before then.
func purgeNotices(b *batch, before time.Time, left *int) error {
	if before.IsZero() {
		return nil
	}
	var old, rows [][]byte // not deleted at once: a cursor skips keys after that
	c := b.tx.Bucket(bucketNoticeOrder).Cursor()
	for k, value := c.First(); k != nil && *left > 0; k, value = c.Next() {
		storedAt, row, err := record.DecodeNoticeOrder(value)
		if err == nil && storedAt >= before.UnixMilli() {
			break
		}
		old, rows = append(old, bytes.Clone(k)), append(rows, bytes.Clone(row))
		*left--
	}
	if len(old) == 0 {
		return nil
	}
	// Their numbers are not given again: one that was told may be taken later.
	if err := b.tx.Bucket(bucketNoticeOrder).SetSequence(lastNotice(b.tx)); err != nil {
		return err
	}
	for bucket, keys := range map[*[]byte][][]byte{&bucketNotices: rows, &bucketNoticeOrder: old, &bucketNoticesPending: old} {
		if err := b.DeleteAll(*bucket, keys); err != nil {
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
