package apikeys

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/storageapi/storageapi/internal/input"
)

// A Page selects a page of a list that is ordered by descending ID.
type Page struct {
	After string // the ID after which the page begins; empty: at the start
	Limit int    // page size; at least 1
}

// A KeyPage is a page of API keys, newest first.
type KeyPage struct {
	Keys []Key

	// Next is the [Page.After] of the next page; empty if there is none.
	Next string
}

// List returns a page of the account's API keys, newest first. Past the end the page is empty.
// page.Limit must be at least 1.
func (s *KeyService) List(ctx context.Context, account string, page Page) (KeyPage, error) {
	if page.Limit < 1 {
		return KeyPage{}, invalid("limit", "must be at least 1")
	}
	limit := page.Limit
	page.Limit = min(limit, math.MaxInt-1) + 1 // the extra key shows that there is a next page
	before := s.uses.unwritten()
	list, err := s.store.ListKeys(ctx, account, page)
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

// pageSize is how many keys an iterator reads at a time.
const pageSize = 100

// All returns an iterator over the account's API keys, newest first. It omits keys created during
// the iteration, and stops after the first error.
func (s *KeyService) All(ctx context.Context, account string) iter.Seq2[Key, error] {
	return input.Pages(func(after string) ([]Key, string, error) {
		page, err := s.List(ctx, account, Page{After: after, Limit: pageSize})
		return page.Keys, page.Next, err
	})
}
