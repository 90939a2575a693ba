package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/clock"
)

// auditLog holds the audit entries of all accounts. Its lists are sorted by number.
type auditLog struct {
	accounts map[string]*accountAuditEntries
	order    []*entry // all audit entries
	last     uint64   // the highest number so far
	holder   string   // holder of the lease, which ends at until
	until    time.Time
}

// accountAuditEntries are the audit entries of an account.
type accountAuditEntries struct {
	all     []*entry
	pending int // number of pending entries
	ids     map[string]bool
	targets map[audit.Target][]*entry // keyed by the target's Ref
	routine []*entry
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
	if n.IsZero() {
		return false
	}
	of := l.accounts[n.Account]
	if of == nil {
		of = &accountAuditEntries{ids: make(map[string]bool), targets: make(map[audit.Target][]*entry)}
	}
	if of.ids[n.ID] {
		return false
	}
	if l.accounts == nil {
		l.accounts = make(map[string]*accountAuditEntries)
	}
	l.accounts[n.Account] = of
	n = copiedAuditEntry(n)
	n.At, n.Since, n.Until = stored(n.At), stored(n.Since), stored(n.Until)
	l.last++
	added := &entry{n, l.last, at}
	of.ids[n.ID] = true
	of.all = append(of.all, added)
	if n.Pending {
		of.pending++
	}
	of.targets[n.Target.Ref()] = append(of.targets[n.Target.Ref()], added)
	l.order = append(l.order, added)
	if n.Routine() {
		if of.routine = append(of.routine, added); len(of.routine) > audit.MaxRoutine {
			l.remove(of.routine[0])
		}
	}
	return true
}

// remove removes the entry from all lists.
func (l *auditLog) remove(n *entry) {
	l.order = without(l.order, n)
	of := l.accounts[n.Account]
	delete(of.ids, n.ID)
	if n.Pending {
		of.pending--
	}
	if of.all = without(of.all, n); len(of.all) == 0 {
		delete(l.accounts, n.Account)
	}
	target := n.Target.Ref()
	if of.targets[target] = without(of.targets[target], n); len(of.targets[target]) == 0 {
		delete(of.targets, target)
	}
	of.routine = without(of.routine, n)
}

// without removes the entry n from the list and returns the list.
func without(list []*entry, n *entry) []*entry {
	i, found := slices.BinarySearchFunc(list, n.number, byNumber)
	switch {
	case !found:
		return list
	case i == 0:
		return list[1:]
	}
	return slices.Delete(list, i, i+1)
}

func byNumber(n *entry, number uint64) int { return cmp.Compare(n.number, number) }

func copiedAuditEntry(n audit.Entry) audit.Entry {
	n.Changed = slices.Clone(n.Changed)
	return n
}

// purge removes up to most audit entries stored before the given time, and reports whether more may
// remain. The oldest entries are at the front of each list.
func (l *auditLog) purge(before time.Time, most int, clock *clock.Clock) (more bool) {
	gone := 0
	for i, n := range l.order {
		if n.at.Before(before) {
			gone = i + 1
		} else if !clock.Ahead(n.at) {
			break
		}
	}
	for ; gone > 0; gone-- {
		if most--; most < 0 {
			return true
		}
		l.remove(l.order[0])
	}
	return false
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
	of := s.entries.accounts[account]
	if of == nil {
		return audit.Page{}, nil
	}
	list := of.all
	if query.Target.ID != "" {
		list = of.targets[query.Target.Ref()]
	}
	if query.After != "" {
		after, _ := s.cursors.Decode(query.After)
		end, _ := slices.BinarySearchFunc(list, after, byNumber)
		list = list[:end]
	}
	var page audit.Page
	var last uint64 // number of the last entry on this page
	for _, n := range slices.Backward(list) {
		if !query.Matches(&n.Entry) {
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
	var list []string
	for account, of := range s.entries.accounts {
		if account > after && of.pending > 0 {
			list = append(list, account)
		}
	}
	slices.Sort(list)
	return list[:min(limit, len(list))], nil
}

// PendingAuditEntries implements [audit.Store]. It scans all audit entries of the account.
func (s *Store) PendingAuditEntries(ctx context.Context, account string, limit int) ([]audit.Numbered, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	of := s.entries.accounts[account]
	if of == nil || of.pending == 0 {
		return nil, nil
	}
	var list []audit.Numbered
	for _, n := range of.all {
		if n.Pending && len(list) < limit {
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
		i, found := slices.BinarySearchFunc(s.entries.order, number, byNumber)
		if !found || !s.entries.order[i].Pending {
			continue
		}
		n := s.entries.order[i]
		n.Pending = false
		s.entries.accounts[n.Account].pending--
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
