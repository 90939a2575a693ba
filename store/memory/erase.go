package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/storageapi/storageapi/store"
	"github.com/storageapi/storageapi/store/driver"
)

// EraseAccount implements [store.Eraser]. It always erases the whole account in one step.
func (s *Store) EraseAccount(ctx context.Context, account string, _ int) (erased store.Receipt, more bool, err error) {
	if err := s.begin(ctx); err != nil {
		return erased, false, err
	}
	defer s.mu.Unlock()
	for _, row := range s.keys[account] {
		s.unindex(row.record)
		erased.Keys++
	}
	delete(s.keys, account)
	for _, row := range s.webhooks[account] {
		delete(s.webhookIDs, row.id)
		erased.Webhooks++
	}
	delete(s.webhooks, account)
	if s.feed != nil {
		s.feed.Forget(driver.Scope{Account: account})
	}
	s.log = slices.DeleteFunc(s.log, func(e *event) bool {
		if e.Account != account {
			return false
		}
		for _, d := range e.deliveries {
			delete(s.deliveries, d.ref())
			erased.Deliveries++
		}
		if name := (ref{e.Account, e.ID}); s.events[name] == e {
			delete(s.events, name)
		}
		erased.Events++
		return true
	})
	before := len(s.recoveries)
	s.recoveries = slices.DeleteFunc(s.recoveries, func(r *recovery) bool { return r.Account == account })
	erased.Recoveries = before - len(s.recoveries)
	for name := range s.alerts {
		if name.account == account {
			delete(s.alerts, name)
			erased.Alerts++
		}
	}
	for key := range s.dedupKeys {
		if key.account == account {
			delete(s.dedupKeys, key)
			erased.DedupKeys++
		}
	}
	erased.AuditEntries = s.entries.remove(func(n *entry) bool { return n.Account == account })
	erased.IdempotencyKeys = s.keyRequests.erase(account) + s.webhookRequests.erase(account)
	return erased, false, nil
}

// erase removes all requests of the account and returns their number.
func (r requests) erase(account string) (erased int) {
	before := len(r)
	maps.DeleteFunc(r, func(name ref, _ request) bool { return name.account == account })
	return before - len(r)
}
