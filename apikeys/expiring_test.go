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

// A zero from means the current time.
func TestAllExpiring_SelectsByExpiry(t *testing.T) {
	service, clock := newClocked(t)
	all := make(map[string]string)
	for i, hours := range []int{5, 1, 3, 1, 48, 0} {
		expires := time.Time{}
		if hours > 0 {
			expires = noon.Add(time.Duration(hours) * time.Hour)
		}
		key, _, err := service.Create(t.Context(), []string{"acct_1", "acct_2"}[i%2], apikeys.CreateParams{Name: "key", Scopes: scopes.Specified(), ExpiresAt: expires})
		if err != nil {
			t.Fatal(err)
		}
		all[key.ID] = string(rune('a' + i))
	}
	list := func(from, to time.Time) (got string) {
		t.Helper()
		for key, err := range service.AllExpiring(t.Context(), from, to) {
			if err != nil {
				t.Fatal(err)
			}
			got += all[key.ID]
		}
		return got
	}
	day := noon.Add(24 * time.Hour)
	if diff := cmp.Diff([]string{"bdca", "bdcae"}, []string{list(time.Time{}, day), list(time.Time{}, day.AddDate(0, 0, 7))}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	clock.Add(2 * time.Hour)
	if diff := cmp.Diff([]string{"ca", "bdca"}, []string{list(time.Time{}, day), list(noon, day)}); diff != "" {
		t.Errorf("later (-want +got):\n%s", diff)
	}
}

// The loop may also stop early.
func TestAllExpiring_ReadFails_YieldsOneError(t *testing.T) {
	service, _ := newClocked(t)
	for i := range 101 { // more than a page
		create(t, service, noon.Add(time.Duration(1+i)*time.Minute))
	}
	n := 0
	for key, err := range service.AllExpiring(t.Context(), time.Time{}, noon.Add(24*time.Hour)) {
		if n++; err != nil || !key.ExpiresAt.Equal(noon.Add(time.Duration(n)*time.Minute)) {
			t.Fatalf("key %d expires at %v, %v", n, key.ExpiresAt, err)
		}
	}
	if n != 101 {
		t.Errorf("%d keys, want 101", n)
	}
	for range service.AllExpiring(t.Context(), time.Time{}, noon.Add(24*time.Hour)) {
		break
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	errs := 0
	for key, err := range service.AllExpiring(ended, time.Time{}, noon.Add(24*time.Hour)) {
		if errs++; !errors.Is(err, context.Canceled) || key.ID != "" {
			t.Errorf("got %+v, %v", key, err)
		}
	}
	if errs != 1 {
		t.Errorf("%d errors, want 1", errs)
	}
}
