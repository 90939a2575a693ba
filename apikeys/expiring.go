package apikeys

import (
	"context"
	"fmt"
	"iter"
	"math"
	"time"
)

// An ExpiryQuery selects a page of the expiring keys of all accounts, ordered by ascending
// ExpiresAt, Account and ID.
type ExpiryQuery struct {
	After  Expiry    // the page begins after this position; no key need exist there
	Before time.Time // only keys with an earlier ExpiresAt
	Limit  int       // page size; at least 1
}

// An Expiry is a position in the list of expiring keys, to the millisecond. A position without
// an account precedes all keys that expire at that time.
type Expiry struct {
	At          time.Time
	Account, ID string
}

// IsZero reports whether e is the zero Expiry.
func (e Expiry) IsZero() bool { return e.At.IsZero() && e.Account == "" && e.ID == "" }

// ExpiryOf returns the position of a key.
func ExpiryOf(key *Key) Expiry { return Expiry{key.ExpiresAt, key.Account, key.ID} }

// An ExpiryPage is a page of expiring keys, earliest expiry first.
type ExpiryPage struct {
	Keys []Key

	// Next is the [ExpiryQuery.After] of the next page; zero if there is none.
	Next Expiry
}

// Expiring returns a page of the keys of all accounts that expire before query.Before, earliest
// first, or an empty page past the end. The expiry of a rotated key's previous value does not
// count. A query without After begins at the current time. An After.At in the past includes
// keys that have expired since. query.Limit must be at least 1.
//
// It is for the host's operators. It covers all accounts, so do not return its result to one
// account.
func (s *KeyService) Expiring(ctx context.Context, query ExpiryQuery) (ExpiryPage, error) {
	if query.Limit < 1 {
		return ExpiryPage{}, invalid("limit", "must be at least 1")
	}
	if query.After.IsZero() {
		query.After.At = s.now()
	}
	limit := query.Limit
	query.Limit = min(limit, math.MaxInt-1) + 1 // the extra key shows that there is a next page
	before := s.uses.unwritten()
	list, err := s.store.ExpiringKeys(ctx, query)
	if err != nil {
		return ExpiryPage{}, fmt.Errorf("list API keys that expire: %w", err)
	}
	for i := range list {
		list[i] = s.shown(list[i], before)
	}
	if len(list) <= limit {
		return ExpiryPage{Keys: list}, nil
	}
	return ExpiryPage{Keys: list[:limit], Next: ExpiryOf(&list[limit-1])}, nil
}

// AllExpiring returns an iterator over the keys of all accounts that expire between now and
// before, in the order of [KeyService.Expiring]. It stops after the first error.
func (s *KeyService) AllExpiring(ctx context.Context, before time.Time) iter.Seq2[Key, error] {
	return func(yield func(Key, error) bool) {
		query := ExpiryQuery{After: Expiry{At: s.now()}, Before: before, Limit: pageSize}
		for {
			page, err := s.Expiring(ctx, query)
			if err != nil {
				yield(Key{}, err)
				return
			}
			for _, key := range page.Keys {
				if !yield(key, nil) {
					return
				}
			}
			if query.After = page.Next; query.After.IsZero() {
				return
			}
		}
	}
}
