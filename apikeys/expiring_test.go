package apikeys_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
)

// Expiring begins now, unless it is asked to begin before, and goes on from page to page.
func TestExpiring(t *testing.T) {
	service, clock := newClocked(t)
	all := make(map[string]string)
	for i, hours := range []int{5, 1, 3, 1, 48, 0} {
		expires := time.Time{}
		if hours > 0 {
			expires = noon.Add(time.Duration(hours) * time.Hour)
		}
		key, _, err := service.Create(t.Context(), []string{"acct_1", "acct_2"}[i%2], apikeys.CreateParams{Name: "key", Scopes: scopes.All(), ExpiresAt: expires})
		if err != nil {
			t.Fatal(err)
		}
		all[key.ID] = string(rune('a' + i))
	}
	pages := func(query apikeys.ExpiryQuery) (got string) {
		t.Helper()
		for {
			page, err := service.Expiring(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range page.Keys {
				got += all[key.ID]
			}
			if query.After = page.Next; query.After.IsZero() {
				return got
			}
			got += ","
		}
	}
	day := noon.Add(24 * time.Hour)
	if diff := cmp.Diff([]string{"bd,ca", "b,d,c,a", "bdca", "bdcae"}, []string{
		pages(apikeys.ExpiryQuery{Before: day, Limit: 2}), pages(apikeys.ExpiryQuery{Before: day, Limit: 1}),
		pages(apikeys.ExpiryQuery{Before: day, Limit: 4}), pages(apikeys.ExpiryQuery{Before: day.AddDate(0, 0, 7), Limit: 99}),
	}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	clock.Add(2 * time.Hour)
	if diff := cmp.Diff([]string{"ca", "bdca"}, []string{
		pages(apikeys.ExpiryQuery{Before: day, Limit: 9}), pages(apikeys.ExpiryQuery{After: apikeys.Expiry{At: noon}, Before: day, Limit: 9}),
	}); diff != "" {
		t.Errorf("later (-want +got):\n%s", diff)
	}
	var invalid *apikeys.ValidationError
	if _, err := service.Expiring(t.Context(), apikeys.ExpiryQuery{Before: day}); !errors.As(err, &invalid) || invalid.Field != "limit" {
		t.Errorf("without a limit: %v", err)
	}
}

// AllExpiring goes on from page to page, can be ended, and tells of an error once.
func TestAllExpiring(t *testing.T) {
	service, _ := newClocked(t)
	for i := range 101 { // more than a page
		create(t, service, noon.Add(time.Duration(1+i)*time.Minute))
	}
	n := 0
	for key, err := range service.AllExpiring(t.Context(), noon.Add(24*time.Hour)) {
		if n++; err != nil || !key.ExpiresAt.Equal(noon.Add(time.Duration(n)*time.Minute)) {
			t.Fatalf("key %d expires at %v, %v", n, key.ExpiresAt, err)
		}
	}
	if n != 101 {
		t.Errorf("%d keys, want 101", n)
	}
	for range service.AllExpiring(t.Context(), noon.Add(24*time.Hour)) {
		break
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	errs := 0
	for key, err := range service.AllExpiring(ended, noon.Add(24*time.Hour)) {
		if errs++; !errors.Is(err, context.Canceled) || key.ID != "" {
			t.Errorf("got %+v, %v", key, err)
		}
	}
	if errs != 1 {
		t.Errorf("%d errors, want 1", errs)
	}
}
