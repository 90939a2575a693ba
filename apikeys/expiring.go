package apikeys

import (
	"context"
	"fmt"
	"iter"
	"math"
	"time"
)

// An ExpiryQuery asks for a part of the keys of all accounts that expire, by ascending
// ExpiresAt, Account and ID.
type ExpiryQuery struct {
	After  Expiry    // where the part begins: with the first key after it; it need not exist
	Before time.Time // only keys whose ExpiresAt is before that
	Limit  int       // how many at most; at least 1
}

// An Expiry is a place among keys that expire, to the millisecond. One without an account
// comes before all keys that expire at that time.
type Expiry struct {
	At          time.Time
	Account, ID string
}

// IsZero reports whether it is none.
func (e Expiry) IsZero() bool { return e.At.IsZero() && e.Account == "" && e.ID == "" }

// ExpiryOf returns the place of a key.
func ExpiryOf(key *Key) Expiry { return Expiry{key.ExpiresAt, key.Account, key.ID} }

// An ExpiryPage is a part of the keys that expire, those that do first coming first.
type ExpiryPage struct {
	Keys []Key

	// Next is the [ExpiryQuery.After] of the page that follows; zero if there is none.
	Next Expiry
}

// Expiring returns a page of the keys of all accounts that expire before a time, those that
// do first coming first; an empty one past the end. Of a key that was rotated it is the
// expiry of the key that counts, not that of its previous value. A query without After
// begins now, and one with an After.At in the past has the keys that have expired since.
// query.Limit must be at least 1.
//
// It is for the host's operators: it asks for no account, so it is not for the answer to a
// request of one.
func (s *KeyService) Expiring(ctx context.Context, query ExpiryQuery) (ExpiryPage, error) {
	if query.Limit < 1 {
		return ExpiryPage{}, invalid("limit", "must be at least 1")
	}
	if query.After.IsZero() {
		query.After.At = s.now()
	}
	limit := query.Limit
	query.Limit = min(limit, math.MaxInt-1) + 1 // the one too many tells that there are more
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

// AllExpiring returns all keys of all accounts that expire from now on and before the given
// time, as [KeyService.Expiring] does. It ends after the first error.
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
