package bolt

import (
	"context"
	"sync"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/auditlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// tell stores an audit entry with a new ID. It ignores a zero entry.
func (b *batch) tell(n audit.Entry) error {
	if n.IsZero() || b.isErasing(n.Account) { // the erasure would remove it
		return nil
	}
	return b.audit.Append(&n, b.store.clock.Time())
}

// addAuditEntry stores an audit entry. It skips zero entries, and entries whose ID another entry of
// the same target already has.
func (b *batch) addAuditEntry(n *audit.Entry, at time.Time, known auditlog.Known) (added bool, err error) {
	if n.IsZero() || b.isErasing(n.Account) {
		return false, nil
	}
	return b.audit.Add(n, at, known)
}

// AddAuditEntries implements [audit.Store].
func (s *engine) AddAuditEntries(ctx context.Context, list []audit.Entry) (added int, err error) {
	err = s.writer.Run(ctx, func(b *batch) error {
		added = 0
		known := make(auditlog.Known)
		for i := range list {
			n := &list[i]
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

// ListAuditEntries implements [audit.Store].
func (s *engine) ListAuditEntries(ctx context.Context, account string, query audit.Query) (page audit.Page, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return page, err
	}
	defer s.done(tx, catchFaults(), &err)
	if s.erasing.has(account) {
		return page, nil
	}
	return auditlog.List(tx, s.cursors, account, query)
}

// PendingAccounts implements [audit.Store].
func (s *engine) PendingAccounts(ctx context.Context, after string, limit int) (list []string, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	return auditlog.PendingAccounts(tx, after, limit), nil
}

// PendingAuditEntries implements [audit.Store]. It skips unreadable entries.
func (s *engine) PendingAuditEntries(ctx context.Context, account string, limit int) (list []audit.Numbered, err error) {
	tx, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	defer s.done(tx, catchFaults(), &err)
	return auditlog.Pending(tx, account, limit), nil
}

// TakeAuditEntries implements [audit.Store].
func (s *engine) TakeAuditEntries(ctx context.Context, numbers []uint64) error {
	return s.writer.Run(ctx, func(b *batch) error { return b.audit.Take(numbers) })
}

// An auditLease allows one holder at a time to report audit entries. It is kept in memory, because
// only one process can use the file.
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
