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

// maxExamined is how many keys Find looks at for a page.
const maxExamined = 1000

// A Filter says which keys [KeyService.Find] returns. The zero Filter admits all.
type Filter struct {
	// Name is a part of the key's name, up to 128 characters. Upper and lower case are the
	// same; otherwise characters are compared as they are. Empty: any name.
	Name string

	// Scopes are scopes that the key holds, all of them. Empty: any.
	Scopes scopes.Set

	// UnusedSince admits keys that were created before that time, and used last before it, or
	// never: uses are known to the minute or so. Zero: any.
	UnusedSince time.Time
}

// IsZero reports whether f admits all keys.
func (f *Filter) IsZero() bool {
	return f.Name == "" && f.Scopes.IsEmpty() && f.UnusedSince.IsZero()
}

// Find is [KeyService.List] of the keys that filter admits. So that a page takes bounded time it
// looks at 1,000 keys at most: it may have fewer keys than page.Limit, or none, and still a Next.
// There is no more only where Next is empty.
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

// admits reports whether a key is to be found; the filter's name is folded.
func (f *Filter) admits(key *Key) bool {
	return strings.Contains(input.Folded(key.Name), f.Name) && key.Scopes.Covers(f.Scopes) &&
		(f.UnusedSince.IsZero() || key.CreatedAt.Before(f.UnusedSince) && key.LastUsedAt.Before(f.UnusedSince))
}
