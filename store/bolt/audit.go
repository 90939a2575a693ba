package bolt

import (
	"context"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/store/bolt/internal/auditlog"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// AddAuditEntries implements [audit.Store].
func (s *engine) AddAuditEntries(ctx context.Context, list []audit.Entry) (added int, err error) {
	err = s.writer.Run(ctx, func(b *batch) error {
		added = 0
		known := make(auditlog.Known)
		for i := range list {
			n := &list[i]
			if n.Action == audit.KeyExpiring {
				if key, _, err := keyByID(b.tx, record.AccountKey(n.Account, n.Target.ID)); err != nil || !n.Announces(key.ExpiresAt) {
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

// LeaseAudit implements [audit.Store].
func (s *engine) LeaseAudit(ctx context.Context, holder string, ttl time.Duration) (held bool, err error) {
	tx, err := s.view(ctx) // fails if the store is closed
	if err != nil {
		return false, err
	}
	return s.auditLease.Take(holder, ttl), tx.Rollback()
}
