package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/notices"
)

// noticeLog keeps notices. Its lists are sorted by number.
type noticeLog struct {
	accounts map[string]*accountNotices
	order    []*notice // all notices
	last     uint64    // the highest number so far
	holder   string    // of the lease, while it lasts
	until    time.Time
}

// accountNotices are the notices of an account.
type accountNotices struct {
	all     []*notice
	ids     map[string]bool
	targets map[notices.Target][]*notice // by Ref
	routine []*notice
}

// A notice is a notice with the store's own fields.
type notice struct {
	notices.Notice
	number uint64
	at     time.Time // time of storing
}

// add stores a notice that has an ID, and reports whether its ID is new to the account.
func (l *noticeLog) add(n notices.Notice) bool { return l.addAt(n, time.Now()) }

// addAt is add with a given time of storing.
func (l *noticeLog) addAt(n notices.Notice, at time.Time) bool {
	if n.IsZero() {
		return false
	}
	of := l.accounts[n.Account]
	if of == nil {
		of = &accountNotices{ids: make(map[string]bool), targets: make(map[notices.Target][]*notice)}
	}
	if of.ids[n.ID] {
		return false
	}
	if l.accounts == nil {
		l.accounts = make(map[string]*accountNotices)
	}
	l.accounts[n.Account] = of
	n = copiedNotice(n)
	n.At, n.Since, n.Until = stored(n.At), stored(n.Since), stored(n.Until)
	l.last++
	added := &notice{n, l.last, at}
	of.ids[n.ID] = true
	of.all = append(of.all, added)
	of.targets[n.Target.Ref()] = append(of.targets[n.Target.Ref()], added)
	l.order = append(l.order, added)
	if n.Routine() {
		if of.routine = append(of.routine, added); len(of.routine) > notices.MaxRoutine {
			l.remove(of.routine[0])
		}
	}
	return true
}

// remove removes a notice from all lists.
func (l *noticeLog) remove(n *notice) {
	l.order = without(l.order, n)
	of := l.accounts[n.Account]
	delete(of.ids, n.ID)
	if of.all = without(of.all, n); len(of.all) == 0 {
		delete(l.accounts, n.Account)
	}
	target := n.Target.Ref()
	if of.targets[target] = without(of.targets[target], n); len(of.targets[target]) == 0 {
		delete(of.targets, target)
	}
	of.routine = without(of.routine, n)
}

// without returns the list without n.
func without(list []*notice, n *notice) []*notice {
	i, found := slices.BinarySearchFunc(list, n.number, byNumber)
	switch {
	case !found:
		return list
	case i == 0:
		return list[1:]
	}
	return slices.Delete(list, i, i+1)
}

func byNumber(n *notice, number uint64) int { return cmp.Compare(n.number, number) }

func copiedNotice(n notices.Notice) notices.Notice {
	n.Changed = slices.Clone(n.Changed)
	return n
}

// purge removes at most most notices stored before the given time, which are the first of all
// lists. It reports whether more may remain.
func (l *noticeLog) purge(before time.Time, most int, clock *clock.Clock) (more bool) {
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

// AddNotices implements [notices.Store].
func (s *Store) AddNotices(ctx context.Context, list []notices.Notice) (added int, err error) {
	if err := s.begin(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	for _, n := range list {
		if n.Action == notices.KeyExpiring {
			if k := s.keys.find(n.Account, n.Target.ID); k == nil || !k.ExpiresAt.Equal(stored(n.Until)) {
				continue
			}
		}
		if s.notices.add(n) {
			added++
		}
	}
	return added, nil
}

// ListNotices implements [notices.Store].
func (s *Store) ListNotices(ctx context.Context, account string, query notices.Query) (notices.Page, error) {
	if err := s.begin(ctx); err != nil {
		return notices.Page{}, err
	}
	defer s.mu.Unlock()
	of := s.notices.accounts[account]
	if of == nil {
		return notices.Page{}, nil
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
	var page notices.Page
	var last uint64 // on this page
	for _, n := range slices.Backward(list) {
		if !query.Matches(&n.Notice) {
			continue
		}
		if len(page.Notices) == query.Limit {
			page.Next = s.cursors.Encode(last)
			break
		}
		page.Notices, last = append(page.Notices, copiedNotice(n.Notice)), n.number
	}
	return page, nil
}

// PendingAccounts implements [notices.Store]. It scans all notices.
func (s *Store) PendingAccounts(ctx context.Context, after string, limit int) ([]string, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []string
	for account, of := range s.notices.accounts {
		if account > after && slices.ContainsFunc(of.all, func(n *notice) bool { return n.Pending }) {
			list = append(list, account)
		}
	}
	slices.Sort(list)
	return list[:min(limit, len(list))], nil
}

// PendingNotices implements [notices.Store]. It scans all notices of the account.
func (s *Store) PendingNotices(ctx context.Context, account string, limit int) ([]notices.Numbered, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	of := s.notices.accounts[account]
	if of == nil {
		return nil, nil
	}
	var list []notices.Numbered
	for _, n := range of.all {
		if n.Pending && len(list) < limit {
			list = append(list, notices.Numbered{Number: n.number, Notice: copiedNotice(n.Notice)})
		}
	}
	return list, nil
}

// TakeNotices implements [notices.Store].
func (s *Store) TakeNotices(ctx context.Context, numbers []uint64) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, n := range s.notices.order {
		if slices.Contains(numbers, n.number) {
			n.Pending = false
		}
	}
	return nil
}

// LeaseNotices implements [notices.Store].
func (s *Store) LeaseNotices(ctx context.Context, holder string, ttl time.Duration) (held bool, err error) {
	if err := s.begin(ctx); err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	return s.notices.lease(holder, ttl), nil
}

func (l *noticeLog) lease(holder string, ttl time.Duration) bool {
	now := time.Now()
	if l.holder != holder && now.Before(l.until) {
		return false
	}
	l.holder, l.until = holder, now.Add(ttl)
	return ttl > 0
}
