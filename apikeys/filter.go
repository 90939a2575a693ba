package apikeys

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/scopes"
)

// maxExamined is the maximum number of keys that Find examines for a page.
const maxExamined = 1000

// A Filter selects the keys that [KeyService.Find] returns. The zero Filter matches all keys.
type Filter struct {
	// Name is a part of the key's name, up to 128 characters. The comparison ignores case
	// but does not normalize Unicode otherwise. Empty: any name.
	Name string

	// Scopes must all be held by the key. Empty: any.
	Scopes scopes.Set

	// UnusedSince matches keys that were created before this time and not used since. Uses
	// are recorded to within about a minute. Zero: any.
	UnusedSince time.Time
}

// IsZero reports whether f matches all keys.
func (f *Filter) IsZero() bool {
	return f.Name == "" && f.Scopes.IsEmpty() && f.UnusedSince.IsZero()
}

// Find is [KeyService.List] restricted to the keys that match filter. It examines at most 1,000
// keys per page, so a page may have fewer keys than page.Limit, or none, and still a Next.
// Only an empty Next means the end.
func (s *KeyService) Find(ctx context.Context, account string, filter Filter, page Page) (KeyPage, error) {
	switch {
	case page.Limit < 1:
		return KeyPage{}, invalid("limit", "must be at least 1")
	case !utf8.ValidString(filter.Name) || utf8.RuneCountInString(filter.Name) > 128:
		return KeyPage{}, invalid("name", "must be at most 128 characters of UTF-8")
	case filter.IsZero():
		return s.List(ctx, account, page)
	}
	filter.Name, filter.Scopes = input.Folded(filter.Name), s.scopes.Resolve(filter.Scopes)
	var found KeyPage
	for seen := 0; seen < maxExamined; seen += pageSize {
		part, err := s.List(ctx, account, Page{After: page.After, Limit: pageSize})
		if err != nil {
			return KeyPage{}, fmt.Errorf("find API keys: %w", err)
		}
		for _, key := range part.Keys {
			if filter.admits(&key) {
				if len(found.Keys) == page.Limit {
					found.Next = page.After
					return found, nil
				}
				found.Keys = append(found.Keys, key)
			}
			page.After = key.ID
		}
		if part.Next == "" {
			return found, nil
		}
	}
	found.Next = page.After
	return found, nil
}

// admits reports whether key matches f. f.Name must be folded.
func (f *Filter) admits(key *Key) bool {
	return strings.Contains(input.Folded(key.Name), f.Name) && key.Scopes.Covers(f.Scopes) &&
		(f.UnusedSince.IsZero() || key.CreatedAt.Before(f.UnusedSince) && key.LastUsedAt.Before(f.UnusedSince))
}
