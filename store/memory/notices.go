package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/notices"
)

// noticeLog keeps notices.
type noticeLog struct {
	all    map[string][]*notice // by account, each ascending by id
	order  []*notice            // by number
	last   uint64               // the number given last
	holder string               // of the lease, until then
	until  time.Time
}

// A notice is one with what the store adds to it.
type notice struct {
	notices.Notice
	number uint64
	at     time.Time // when it was stored
}

// add stores a notice, if it is one, and reports whether its id is new to the account.
func (l *noticeLog) add(n notices.Notice) bool { return l.addAt(n, time.Now()) }

// addAt is add of a notice that was stored then.
func (l *noticeLog) addAt(n notices.Notice, at time.Time) bool {
	if n.IsZero() {
		return false
	}
	list := l.all[n.Account]
	i, found := findNotice(list, n.ID)
	if found {
		return false
	}
	if l.all == nil {
		l.all = make(map[string][]*notice)
	}
	n = copiedNotice(n)
	n.At, n.Since, n.Until = stored(n.At), stored(n.Since), stored(n.Until)
	l.last++
	added := &notice{n, l.last, at}
	l.all[n.Account] = slices.Insert(list, i, added)
	l.order = append(l.order, added)
	return true
}

func findNotice(list []*notice, id string) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(n *notice, id string) int { return strings.Compare(n.ID, id) })
}

func copiedNotice(n notices.Notice) notices.Notice {
	n.Changed = slices.Clone(n.Changed)
	return n
}

// purge removes notices that were stored before then, at most so many, and reports whether
// there may be more.
func (l *noticeLog) purge(before time.Time, most int) (more bool) {
	for len(l.order) > 0 && l.order[0].at.Before(before) {
		if most--; most < 0 {
			return true
		}
		old := l.order[0]
		l.order = l.order[1:]
		list := l.all[old.Account]
		i, _ := findNotice(list, old.ID)
		if list = slices.Delete(list, i, i+1); len(list) == 0 {
			delete(l.all, old.Account)
		} else {
			l.all[old.Account] = list
		}
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
	list := s.notices.all[account]
	if query.After != "" {
		end, _ := findNotice(list, query.After)
		list = list[:end]
	}
	var page notices.Page
	for _, n := range slices.Backward(list) {
		if !query.Matches(&n.Notice) {
			continue
		}
		if len(page.Notices) == query.Limit {
			page.Next = page.Notices[query.Limit-1].ID
			break
		}
		page.Notices = append(page.Notices, copiedNotice(n.Notice))
	}
	return page, nil
}

// PendingNotices implements [notices.Store]. It looks through all notices.
func (s *Store) PendingNotices(ctx context.Context, after uint64, limit int) ([]notices.Numbered, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var list []notices.Numbered
	for _, n := range s.notices.order {
		if n.Pending && n.number > after && len(list) < limit {
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
