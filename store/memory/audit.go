package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/clock"
)

// auditLog holds the audit entries of all accounts. Lists scan them.
type auditLog struct {
	order   []*entry       // sorted by number
	ids     map[ref]bool   // by account and ID
	routine map[string]int // number of routine entries by account
	last    uint64         // the highest number so far
	holder  string         // holder of the lease, which ends at until
	until   time.Time
}

// An entry is an audit entry with the fields that the store adds.
type entry struct {
	audit.Entry
	number uint64
	at     time.Time // when the entry was stored
}

// add stores an audit entry that has an ID, and reports whether its ID is new to the account.
func (l *auditLog) add(n audit.Entry) bool { return l.addAt(n, time.Now()) }

// addAt works like add, for an entry that was stored at the given time.
func (l *auditLog) addAt(n audit.Entry, at time.Time) bool {
	name := ref{n.Account, n.ID}
	if n.IsZero() || l.ids[name] {
		return false
	}
	if l.ids == nil {
		l.ids, l.routine = make(map[ref]bool), make(map[string]int)
	}
	n = copiedAuditEntry(n)
	n.At, n.Since, n.Until = stored(n.At), stored(n.Since), stored(n.Until)
	l.last++
	l.ids[name] = true
	l.order = append(l.order, &entry{n, l.last, at})
	if n.Routine() {
		if l.routine[n.Account]++; l.routine[n.Account] > audit.MaxRoutine {
			i := slices.IndexFunc(l.order, func(other *entry) bool { return other.Account == n.Account && other.Routine() })
			oldest := l.order[i]
			l.remove(func(other *entry) bool { return other == oldest })
		}
	}
	return true
}

// remove removes the entries for which gone returns true, and returns their number.
func (l *auditLog) remove(gone func(n *entry) bool) (removed int) {
	l.order = slices.DeleteFunc(l.order, func(n *entry) bool {
		if !gone(n) {
			return false
		}
		removed++
		delete(l.ids, ref{n.Account, n.ID})
		if n.Routine() {
			l.routine[n.Account]--
		}
		return true
	})
	return removed
}

func byNumber(n *entry, number uint64) int { return cmp.Compare(n.number, number) }

func copiedAuditEntry(n audit.Entry) audit.Entry {
	n.Changed = slices.Clone(n.Changed)
	return n
}

// purge removes up to most audit entries stored before the given time, and reports whether more may
// remain.
func (l *auditLog) purge(before time.Time, most int, clock *clock.Clock) (more bool) {
	gone := 0
	for i, n := range l.order {
		if n.at.Before(before) {
			gone = i + 1
		} else if !clock.Ahead(n.at) {
			break
		}
	}
	if gone > 0 {
		last := l.order[min(gone, most)-1].number
		l.remove(func(n *entry) bool { return n.number <= last })
	}
	return gone > most
}

// AddAuditEntries implements [audit.Store].
func (s *Store) AddAuditEntries(ctx context.Context, list []audit.Entry) (added int, err error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	for _, n := range list {
		if n.Until = stored(n.Until); n.Action == audit.KeyExpiring {
			if k := s.keys.find(n.Account, n.Target.ID); k == nil || !n.Announces(k.ExpiresAt) {
				continue
			}
		}
		if s.entries.add(n) {
			added++
		}
	}
	return added, nil
}

// ListAuditEntries implements [audit.Store].
func (s *Store) ListAuditEntries(ctx context.Context, account string, query audit.Query) (audit.Page, error) {
	if err := s.begin(ctx); err != nil {
		return audit.Page{}, err
	}
	defer s.mu.Unlock()
	list := s.entries.order
	if query.After != "" {
		after, _ := s.cursors.Decode(query.After)
		end, _ := slices.BinarySearchFunc(list, after, byNumber)
		list = list[:end]
	}
	var page audit.Page
	var last uint64 // number of the last entry on this page
	for _, n := range slices.Backward(list) {
		if n.Account != account || !query.Matches(&n.Entry) {
			continue
		}
		if len(page.Entries) == query.Limit {
			page.Next = s.cursors.Encode(last)
			break
		}
		page.Entries, last = append(page.Entries, copiedAuditEntry(n.Entry)), n.number
	}
	return page, nil
}

// PendingAccounts implements [audit.Store].
func (s *Store) PendingAccounts(ctx context.Context, after string, limit int) ([]string, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	pending := make(map[string]bool)
	for _, n := range s.entries.order {
		if n.Pending && n.Account > after {
			pending[n.Account] = true
		}
	}
	list := slices.Sorted(maps.Keys(pending))
	return list[:min(limit, len(list))], nil
}

// PendingAuditEntries implements [audit.Store].
func (s *Store) PendingAuditEntries(ctx context.Context, account string, limit int) ([]audit.Numbered, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []audit.Numbered
	for _, n := range s.entries.order {
		if n.Pending && n.Account == account && len(list) < limit {
			list = append(list, audit.Numbered{Number: n.number, Entry: copiedAuditEntry(n.Entry)})
		}
	}
	return list, nil
}

// TakeAuditEntries implements [audit.Store].
func (s *Store) TakeAuditEntries(ctx context.Context, numbers []uint64) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, number := range numbers {
		if i, found := slices.BinarySearchFunc(s.entries.order, number, byNumber); found {
			s.entries.order[i].Pending = false
		}
	}
	return nil
}

// LeaseAudit implements [audit.Store].
func (s *Store) LeaseAudit(ctx context.Context, holder string, ttl time.Duration) (held bool, err error) {
	if err := s.begin(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	return s.entries.lease(holder, ttl), nil
}

func (l *auditLog) lease(holder string, ttl time.Duration) bool {
	now := time.Now()
	if l.holder != holder && now.Before(l.until) {
		return false
	}
	l.holder, l.until = holder, now.Add(ttl)
	return ttl > 0
}
