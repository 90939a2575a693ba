package apikeys

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
)

// A KeyQuery selects keys of an account and a page in their list.
type KeyQuery struct {
	// Name selects keys whose name contains it, up to 128 characters. The comparison ignores case
	// but does not otherwise normalize Unicode. Empty means any name.
	Name string

	// Scopes selects keys that hold all of these scopes. Empty means any scopes.
	Scopes scopes.Set

	// Labels selects keys that have all of these labels, with these values. Empty means any key.
	Labels map[string]string

	// Within selects keys that are limited to resources within these. Zero means any key.
	Within auth.Resources

	// UnusedSince selects keys that were created before this time and not used since. Uses are
	// recorded to within about a minute. Zero means any key.
	UnusedSince time.Time

	// ExpiresBefore selects keys that expire before this time, including expired keys. Zero means
	// any.
	ExpiresBefore time.Time

	After string // [KeyPage.Next] of the previous page; empty means start at the newest key
	Limit int    // page size; at least 1
}

// A KeyPage is a page of API keys, newest first.
type KeyPage struct {
	Keys []Key

	// Next is the [KeyQuery.After] of the next page. It is empty if this is the last page.
	Next string
}

// maxExamined is the maximum number of keys that List examines for one page.
const maxExamined = 1000

// List returns a page of the account's API keys, newest first. After the last key, the page is
// empty. If the query has any field but After and Limit, List examines at most 1,000 keys for a
// page. Such a page may have fewer than query.Limit keys, or none, even if more follow. Only an empty
// Next means the end.
func (s *KeyService) List(ctx context.Context, account string, query KeyQuery) (KeyPage, error) {
	switch {
	case query.Limit < 1:
		return KeyPage{}, input.Invalid("limit", "must be at least 1")
	case !utf8.ValidString(query.Name) || utf8.RuneCountInString(query.Name) > 128:
		return KeyPage{}, input.Invalid("name", "must be at most 128 characters of UTF-8")
	case query.Name == "" && query.Scopes.IsEmpty() && len(query.Labels) == 0 && query.Within.IsZero() && query.UnusedSince.IsZero() && query.ExpiresBefore.IsZero():
		return s.list(ctx, account, query.After, query.Limit)
	}
	query.Name, query.Scopes = input.Folded(query.Name), s.scopes.Resolve(query.Scopes)
	var found KeyPage
	for seen := 0; seen < maxExamined; seen += pageSize {
		part, err := s.list(ctx, account, query.After, pageSize)
		if err != nil {
			return KeyPage{}, err
		}
		for _, key := range part.Keys {
			if query.admits(&key) {
				if len(found.Keys) == query.Limit {
					found.Next = found.Keys[query.Limit-1].ID // a selected key: the ID of an omitted key would reveal that key
					return found, nil
				}
				found.Keys = append(found.Keys, key)
			}
			query.After = key.ID
		}
		if part.Next == "" {
			return found, nil
		}
	}
	found.Next = query.After
	return found, nil
}

// admits reports whether the query selects key. q.Name must be folded.
func (q *KeyQuery) admits(key *Key) bool {
	if len(q.Labels) > 0 {
		labels := key.Labels.Map()
		for name, value := range q.Labels {
			if found, ok := labels[name]; !ok || found != value {
				return false
			}
		}
	}
	return strings.Contains(input.Folded(key.Name), q.Name) && key.Scopes.Covers(q.Scopes) && q.Within.Covers(key.Resources) &&
		(q.UnusedSince.IsZero() || key.CreatedAt.Before(q.UnusedSince) && key.LastUsedAt.Before(q.UnusedSince)) &&
		(q.ExpiresBefore.IsZero() || !key.ExpiresAt.IsZero() && key.ExpiresAt.Before(q.ExpiresBefore))
}

// list returns a page of the account's keys without applying a filter.
func (s *KeyService) list(ctx context.Context, account, after string, limit int) (KeyPage, error) {
	before := s.uses.unwritten()
	list, err := s.store.ListKeys(ctx, account, driver.ListQuery{
		After: after,
		Limit: min(limit, math.MaxInt-1) + 1, // the extra key shows that there is a next page
	})
	if err != nil {
		return KeyPage{}, fmt.Errorf("list API keys: %w", err)
	}
	for i := range list {
		list[i] = s.shown(list[i], before)
	}
	if len(list) <= limit {
		return KeyPage{Keys: list}, nil
	}
	return KeyPage{Keys: list[:limit], Next: list[limit-1].ID}, nil
}

// pageSize is the number of keys that an iterator reads at a time.
const pageSize = 100

// All returns an iterator over the account's API keys that the query selects, newest first,
// starting after query.After. It ignores query.Limit, omits keys created during the iteration,
// and stops after the first error.
func (s *KeyService) All(ctx context.Context, account string, query KeyQuery) iter.Seq2[Key, error] {
	return input.Pages(func(after string) ([]Key, string, error) {
		part := query
		part.After, part.Limit = cmp.Or(after, query.After), pageSize
		page, err := s.List(ctx, account, part)
		return page.Keys, page.Next, err
	})
}

// AllExpiring returns an iterator over the keys of all accounts that expire at or after from and
// before to, earliest first. A zero from means the current time; an earlier from includes expired
// keys. The iterator ignores when the previous value of a rotated key expires. It stops after the
// first error. With [Config.MaxLifetime], it first reads all keys of all accounts, since no index
// has the ends of their lifetimes, and holds in memory the keys that end with their lifetime.
//
// AllExpiring is meant for the host's operators. Its result covers all accounts, so do not show it
// to an account.
func (s *KeyService) AllExpiring(ctx context.Context, from, to time.Time) iter.Seq2[Key, error] {
	return func(yield func(Key, error) bool) {
		if from.IsZero() {
			from = s.now()
		}
		overlong, err := s.overlong(ctx, from, to)
		if err != nil {
			yield(Key{}, err)
			return
		}
		for key, err := range s.listedExpiring(ctx, from, to) {
			for err == nil && len(overlong) > 0 && compareExpiry(&overlong[0], &key) < 0 {
				if !yield(overlong[0], nil) {
					return
				}
				overlong = overlong[1:]
			}
			if !yield(key, err) {
				return
			}
		}
		for _, key := range overlong {
			if !yield(key, nil) {
				return
			}
		}
	}
}

// listedExpiring is like AllExpiring, but omits the keys that overlong returns.
func (s *KeyService) listedExpiring(ctx context.Context, from, to time.Time) iter.Seq2[Key, error] {
	return func(yield func(Key, error) bool) {
		query := driver.ExpiryQuery{After: driver.Expiry{At: from}, Before: to, Limit: pageSize}
		for {
			before := s.uses.unwritten()
			list, err := s.store.ExpiringKeys(ctx, query)
			if err != nil {
				yield(Key{}, fmt.Errorf("list expiring API keys: %w", err))
				return
			}
			for i := range list {
				if !s.lifetime.ends(&list[i]) && !yield(s.shown(list[i], before), nil) {
					return
				}
			}
			if len(list) < pageSize {
				return
			}
			query.After = driver.ExpiryOf(&list[len(list)-1])
		}
	}
}
