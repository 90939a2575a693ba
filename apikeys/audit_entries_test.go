package apikeys_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/memory"
)

// A key gets one audit entry 14 days before it expires and one 3 days before, even if several
// services repeatedly look for expiring keys. It gets none for a lead that began before the key was
// created.
func TestExpiringKeys_EachLead_GetOneAuditEntry(t *testing.T) {
	store, clock := memory.New(), testclock.At(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	var services []*apikeys.KeyService
	for range 2 {
		s, err := apikeys.New(store, apikeys.Config{Now: clock.Now}, driver.WithNotify())
		if err != nil {
			t.Fatal(err)
		}
		services = append(services, s)
	}
	const day = 24 * time.Hour
	names := make(map[string]string)
	create := func(name string, life time.Duration) {
		params := apikeys.CreateParams{Name: name, Scopes: scopes.Of(scopes.FilesRead)}
		if life > 0 {
			params.ExpiresAt = clock.Now().Add(life)
		}
		key, _, err := services[0].Create(t.Context(), "acct", params)
		if err != nil {
			t.Fatal(err)
		}
		names[key.ID] = name
	}
	create("month", 30*day)
	create("week", 7*day)
	create("day", day)
	create("for ever", 0)
	for i := range 150 {
		create(fmt.Sprint("more", i), 365*day)
	}
	seen := make(map[string]bool)
	look := func() (told []string) {
		for range 2 {
			for _, s := range services {
				if err := s.AddExpiring(t.Context(), store.AddAuditEntries); err != nil {
					t.Fatal(err)
				}
			}
		}
		page, err := store.ListAuditEntries(t.Context(), "acct", audit.Query{Actions: []audit.Action{audit.KeyExpiring}, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range page.Entries {
			if seen[n.ID] {
				continue
			}
			seen[n.ID] = true
			if !n.Pending || n.Actor.Kind != audit.ActorService || n.Target.Kind != audit.TargetKey || !n.At.Equal(clock.Now()) {
				t.Errorf("%+v", n)
			}
			told = append(told, fmt.Sprintf("%s in %v", names[n.Target.ID], n.Until.Sub(clock.Now())))
		}
		return told
	}
	for _, step := range []struct {
		after time.Duration
		want  []string
	}{
		{0, nil},
		{4*day - time.Millisecond, nil},
		{time.Millisecond, []string{"week in 72h0m0s"}},
		{12 * day, []string{"month in 336h0m0s"}},
		{day, nil},
		{11 * day, []string{"month in 48h0m0s"}},
		{day, nil},
	} {
		clock.Add(step.after)
		if diff := cmp.Diff(step.want, look()); diff != "" {
			t.Errorf("after another %v (-want +got):\n%s", step.after, diff)
		}
	}
	clock.Add(330 * day)
	if got := look(); len(got) != 150 {
		t.Errorf("%d keys are told of, want 150", len(got))
	}
}
