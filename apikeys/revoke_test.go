package apikeys_test

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/memory"
)

func wantRefused(t *testing.T, service *apikeys.KeyService, token apikeys.Token, want bool) {
	t.Helper()
	if _, err := service.Verify(t.Context(), token.Reveal()); errors.Is(err, auth.ErrUnauthorized) != want || err != nil && !want {
		t.Errorf("Verify: %v, want refused %v", err, want)
	}
}

func TestRevokeValue_CurrentValue_DeletesKey(t *testing.T) {
	service, _ := newClocked(t)
	key, first := create(t, service, time.Time{})
	_, second := rotate(t, service, key.ID, time.Hour)
	value, err := service.RevokeValue(t.Context(), second.Reveal())
	if err != nil || value.Key.ID != key.ID || value.Replaced || !value.Live {
		t.Fatalf("RevokeValue = %+v, %v", value, err)
	}
	wantRefused(t, service, first, true)
	wantRefused(t, service, second, true)
	if _, err := service.RevokeValue(t.Context(), second.Reveal()); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("again: %v, want ErrNotFound", err)
	}
}

func TestRevokeValue_ReplacedValue_KeepsCurrentValue(t *testing.T) {
	store := memory.New()
	service := newService(t, store, apikeys.Config{})
	key, first := create(t, service, time.Time{})
	_, second := rotate(t, service, key.ID, time.Hour)
	value, err := service.RevokeValue(t.Context(), first.Reveal())
	if err != nil || value.Key.ID != key.ID || !value.Replaced || !value.Live {
		t.Fatalf("RevokeValue = %+v, %v", value, err)
	}
	wantRefused(t, service, first, true)
	wantRefused(t, service, second, false)
	if got := get(t, service, key.ID); !got.Previous.IsZero() || got.PreviousHint != "" || !got.PreviousExpiresAt.IsZero() {
		t.Errorf("the key still has its previous value: %+v", got)
	}
	if _, err := service.Lookup(t.Context(), first.Reveal()); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("Lookup: %v, want ErrNotFound", err)
	}
	page, err := store.ListAuditEntries(t.Context(), account, audit.Query{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	last := page.Entries[0]
	if diff := cmp.Diff([]string{"previous"}, last.Changed); last.Action != audit.KeyChanged || last.Target.ID != key.ID || diff != "" {
		t.Errorf("audit entry %+v, want a change of previous", last)
	}
}

func TestRevokeValue_UnknownValue_ReturnsErrNotFound(t *testing.T) {
	service, clock := newClocked(t)
	_, token := create(t, service, noon.Add(time.Hour))
	text := token.Reveal()
	for _, token := range []string{"", "sak_", text[:len(text)-1] + "!"} {
		if _, err := service.RevokeValue(t.Context(), token); !errors.Is(err, apierr.ErrNotFound) {
			t.Errorf("RevokeValue(%q) returns %v, want ErrNotFound", token, err)
		}
	}
	clock.Set(noon.Add(2 * time.Hour))
	if value, err := service.RevokeValue(t.Context(), text); err != nil || value.Live {
		t.Errorf("an expired value: %+v, %v, want it revoked", value, err)
	}
}

func TestRevokeValue_ImportedValue_DeletesKey(t *testing.T) {
	service, _ := newImporter(t, memory.New())
	imports(t, service, ofTable("plain", sum(oldValue(1))))
	if _, err := service.RevokeValue(t.Context(), oldValue(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := service.Verify(t.Context(), oldValue(1)); !errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("Verify: %v, want ErrUnauthorized", err)
	}
}

// A rotation may turn the current value into the previous one between lookup and revocation.
// Whichever call wins, the revoked value must be refused afterwards. If the rotation wins, its new
// value must stay valid.
func TestRevokeValue_ConcurrentRotation_RefusesValueOnly(t *testing.T) {
	service := newService(t, memory.New(), apikeys.Config{MaxPerAccount: 1000})
	rotated := 0
	for range 300 {
		key, leaked := create(t, service, time.Time{})
		var fresh apikeys.Token
		var rotation, revocation error
		var group sync.WaitGroup
		group.Go(func() {
			_, fresh, rotation = service.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{Grace: time.Hour})
		})
		group.Go(func() { _, revocation = service.RevokeValue(t.Context(), leaked.Reveal()) })
		group.Wait()
		if revocation != nil || rotation != nil && !errors.Is(rotation, apierr.ErrNotFound) {
			t.Fatalf("revocation: %v, rotation: %v", revocation, rotation)
		}
		wantRefused(t, service, leaked, true)
		if rotation == nil {
			rotated++
			wantRefused(t, service, fresh, false)
		}
	}
	t.Logf("%d of 300 rotations came first", rotated)
}

// documentedPattern returns the token pattern that docs/operations.md gives for secret scanners.
func documentedPattern(t *testing.T) *regexp.Regexp {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "regex = '''")
	pattern, _, closed := strings.Cut(after, "'''")
	if !found || !closed {
		t.Fatal("docs/operations.md has no gitleaks rule")
	}
	return regexp.MustCompile(pattern)
}

func TestPattern_OfDocumentation_MatchesEveryValue(t *testing.T) {
	pattern := documentedPattern(t)
	for _, prefix := range []string{"sak", "live_sak"} {
		service := newService(t, memory.New(), apikeys.Config{Prefix: prefix, MaxPerAccount: 1000})
		for range 200 {
			_, token := create(t, service, time.Time{})
			text := "key = \"" + token.Reveal() + "\""
			found := pattern.FindAllString(text, -1)
			if want := (prefix == "sak"); slices.Equal(found, []string{token.Reveal()}) != want {
				t.Fatalf("the pattern finds %d texts in a value with the prefix %s, want a match %v", len(found), prefix, want)
			}
		}
	}
}
