package apikeys_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/store/memory"
)

// Disabling a key disables both of its values. Enabling it restores both.
func TestUpdate_Disabled_RefusesAllValuesUntilEnabled(t *testing.T) {
	service, _ := newClocked(t)
	key, old := create(t, service, time.Time{})
	_, current := rotate(t, service, key.ID, time.Hour)
	for range 2 {
		turn(t, service, key.ID, false)
		for _, token := range []apikeys.Token{old, current} {
			refused(t, service, token.Reveal())
			if _, err := service.Recheck(t.Context(), auth.Principal{Account: account, KeyID: key.ID}, token.Reveal()); !errors.Is(err, auth.ErrUnauthorized) {
				t.Errorf("Recheck: %v", err)
			}
			if value, err := service.Lookup(t.Context(), token.Reveal()); err != nil || value.Live || !value.Key.Disabled {
				t.Errorf("Lookup: live %v, disabled %v, %v", value.Live, value.Key.Disabled, err)
			}
		}
		turn(t, service, key.ID, true)
		accepted(t, service, old.Reveal())
		accepted(t, service, current.Reveal())
	}
}

// The value that a disabled key had before its rotation may have leaked, so it must not return when
// the key is enabled, even within the grace period.
func TestRotate_DisabledKey_StaysDisabledAndEndsValue(t *testing.T) {
	service, _ := newClocked(t)
	key, leaked := create(t, service, time.Time{})
	turn(t, service, key.ID, false)
	rotated, fresh := rotate(t, service, key.ID, time.Hour)
	if !rotated.Disabled || !rotated.Previous.IsZero() || !rotated.PreviousExpiresAt.IsZero() {
		t.Errorf("rotated: %+v", rotated)
	}
	refused(t, service, leaked.Reveal())
	refused(t, service, fresh.Reveal())
	turn(t, service, key.ID, true)
	refused(t, service, leaked.Reveal())
	accepted(t, service, fresh.Reveal())
}

func TestUpdate_Expiry_TakesEffectAndLimitsPreviousValue(t *testing.T) {
	service, clock := newClocked(t)
	key, old := create(t, service, time.Time{})
	_, current := rotate(t, service, key.ID, 2*time.Hour)
	set := func(at time.Time) apikeys.Key {
		t.Helper()
		key, err := service.Update(t.Context(), account, key.ID, apikeys.UpdateParams{ExpiresAt: &at})
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	local := time.FixedZone("", 3600)
	if got := set(noon.Add(time.Hour + 999*time.Microsecond).In(local)); !got.ExpiresAt.Equal(noon.Add(time.Hour)) || got.ExpiresAt.Location() != time.UTC || !got.PreviousExpiresAt.Equal(got.ExpiresAt) {
		t.Errorf("shortened: expires at %v, the previous value at %v", got.ExpiresAt, got.PreviousExpiresAt)
	}
	if got := set(time.Time{}); !got.ExpiresAt.IsZero() || !got.PreviousExpiresAt.Equal(noon.Add(time.Hour)) {
		t.Errorf("extended: expires at %v, the previous value at %v", got.ExpiresAt, got.PreviousExpiresAt)
	}
	set(noon.Add(3 * time.Hour))
	clock.Set(noon.Add(time.Hour))
	refused(t, service, old.Reveal())
	accepted(t, service, current.Reveal())
	clock.Set(noon.Add(3*time.Hour - time.Millisecond))
	accepted(t, service, current.Reveal())
	clock.Add(time.Millisecond)
	refused(t, service, current.Reveal())
	clock.Set(noon) // the clock is set back
	accepted(t, service, current.Reveal())
	clock.Set(noon.Add(3 * time.Hour))
	set(noon.Add(4 * time.Hour))
	accepted(t, service, current.Reveal())

	for _, at := range []time.Time{clock.Now(), clock.Now().Add(999 * time.Microsecond), noon, time.Unix(0, 0), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		var invalid *apierr.ValidationError
		if _, err := service.Update(t.Context(), account, key.ID, apikeys.UpdateParams{ExpiresAt: &at}); !errors.As(err, &invalid) || invalid.Field != "expiresAt" {
			t.Errorf("%v: %v", at, err)
		}
	}
}

func TestLabels_AreMergedByName(t *testing.T) {
	service, _ := newClocked(t)
	params := apikeys.CreateParams{Name: "a", Scopes: readFiles, Labels: map[string]string{"team": "billing", "env": "prod", "empty": ""}, IdempotencyKey: "1"}
	key, token, err := service.Create(t.Context(), account, params)
	if diff := cmp.Diff(params.Labels, key.Labels.Map()); err != nil || diff != "" {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	if again, _, err := service.Create(t.Context(), account, params); err != nil || again.ID != key.ID {
		t.Errorf("again: %s, %v", again.ID, err)
	}
	params.Labels = map[string]string{"team": "billing"}
	if _, _, err := service.Create(t.Context(), account, params); !errors.Is(err, apierr.ErrIdempotencyMismatch) {
		t.Errorf("again with other labels: %v", err)
	}
	text := func(s string) *string { return &s }
	for _, step := range []struct {
		changes map[string]*string
		want    map[string]string
	}{
		{nil, key.Labels.Map()},
		{map[string]*string{"env": nil, "none": nil, "<é>&\"": text("\u2028😀"), "team": text("a=b")}, map[string]string{"team": "a=b", "empty": "", "<é>&\"": "\u2028😀"}},
		{map[string]*string{"team": nil, "empty": nil, "<é>&\"": nil}, map[string]string{}},
	} {
		got, err := service.Update(t.Context(), account, key.ID, apikeys.UpdateParams{Labels: step.changes})
		if diff := cmp.Diff(step.want, got.Labels.Map()); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	if got, _ := service.Get(t.Context(), account, key.ID); got.Labels != "" {
		t.Errorf("without labels: %q", got.Labels)
	}
	accepted(t, service, token.Reveal())
}

func TestLabels_BeyondLimits_AreRefused(t *testing.T) {
	service, _ := newClocked(t)
	many := make(map[string]string)
	for i := range 16 {
		many[fmt.Sprint("label ", i)] = strings.Repeat("x", 100)
	}
	long := map[string]string{strings.Repeat("é", 64): strings.Repeat("é", 256)} // 640 bytes
	for i := range 6 {
		long[fmt.Sprint(i)+strings.Repeat("n", 63)] = strings.Repeat("é", 256) // 576 bytes
	}
	create := func(labels map[string]string) (apikeys.Key, error) {
		key, _, err := service.Create(t.Context(), account, apikeys.CreateParams{Name: "a", Scopes: readFiles, Labels: labels})
		return key, err
	}
	key, err := create(many)
	_, errLong := create(long)
	if err := errors.Join(err, errLong); err != nil {
		t.Fatal(err)
	}
	text := func(s string) *string { return &s }
	check := func(name string, err error) {
		t.Helper()
		var invalid *apierr.ValidationError
		if !errors.As(err, &invalid) || invalid.Field != "labels" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, label := range map[string][2]string{
		"no name": {"", "a"}, "name with =": {"a=b", "c"}, "name ends with a space": {"a ", "b"}, "value begins with a space": {"a", " b"}, "long name": {strings.Repeat("é", 65), "a"}, "control character in name": {"a\n", "a"}, "invalid name": {"\xff", "a"},
		"long value": {"a", strings.Repeat("é", 257)}, "control character in value": {"a", "\x00"}, "invalid value": {"a", "\xff"},
	} {
		_, err := create(map[string]string{label[0]: label[1]})
		check(name, err)
		_, err = service.Update(t.Context(), account, key.ID, apikeys.UpdateParams{Labels: map[string]*string{"label 1": nil, label[0]: &label[1]}})
		check(name, err)
	}
	long["x"] = ""
	_, err = create(long)
	check("4097 bytes", err)
	name := "changed"
	_, err = service.Update(t.Context(), account, key.ID, apikeys.UpdateParams{Name: &name, Labels: map[string]*string{"one more": text("")}})
	check("17 labels", err)
	if got, err := service.Get(t.Context(), account, key.ID); err != nil || got.Labels != key.Labels || got.Name != "a" {
		t.Errorf("after refused changes: %+v, %v", got, err)
	}
	if _, err := service.Update(t.Context(), account, key.ID, apikeys.UpdateParams{Labels: map[string]*string{"one more": text(""), "label 1": nil}}); err != nil {
		t.Errorf("one removed and one added: %v", err)
	}
}

func TestUpdate_Settings_AreAudited(t *testing.T) {
	store := memory.New()
	service := newService(t, store, apikeys.Config{})
	key, _ := create(t, service, time.Time{})
	value, later, on, off := "x", time.Now().Add(time.Hour), true, false
	for _, step := range []struct {
		params  apikeys.UpdateParams
		changed []string
		turned  string
		routine bool
	}{
		{apikeys.UpdateParams{Labels: map[string]*string{"a": &value}}, []string{"labels"}, "", true},
		{apikeys.UpdateParams{Enabled: &off}, []string{"enabled"}, "off", false},
		{apikeys.UpdateParams{Enabled: &on, ExpiresAt: &later, Name: &value}, []string{"name", "expiresAt", "enabled"}, "on", false},
		{apikeys.UpdateParams{Labels: map[string]*string{"a": nil}, Name: &key.Name}, []string{"name", "labels"}, "", true},
	} {
		if _, err := service.Update(t.Context(), account, key.ID, step.params); err != nil {
			t.Fatal(err)
		}
		page, err := store.ListAuditEntries(t.Context(), account, audit.Query{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		n := page.Entries[0]
		if diff := cmp.Diff(step.changed, n.Changed); diff != "" || n.Turned != step.turned || n.Routine() != step.routine {
			t.Errorf("turned %q, routine %v; want %q, %v (-want +got):\n%s", n.Turned, n.Routine(), step.turned, step.routine, diff)
		}
	}
}

func TestExtends(t *testing.T) {
	key := apikeys.Key{ID: "key_1", Scopes: readFiles, ExpiresAt: noon}
	changed := func(expiresAt time.Time, disabled bool) apikeys.Key {
		after := key
		after.ExpiresAt, after.Disabled = expiresAt, disabled
		return after
	}
	never, off := changed(time.Time{}, false), changed(noon, true)
	for name, test := range map[string]struct {
		before, after apikeys.Key
		want          bool
	}{
		"unchanged":            {key, key, false},
		"earlier":              {key, changed(noon.Add(-1), false), false},
		"later":                {key, changed(noon.Add(1), false), true},
		"later while disabled": {off, changed(noon.Add(1), true), true},
		"to never":             {key, never, true},
		"from never":           {never, key, false},
		"disabled":             {key, off, false},
		"enabled":              {off, key, true},
		"enabled and earlier":  {off, changed(noon.Add(-1), false), true},
		"stays disabled":       {off, off, false},
		"created":              {apikeys.Key{}, never, false},
		"deleted":              {off, apikeys.Key{}, false},
	} {
		if got := apikeys.Extends(test.before, test.after); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A condition sees the change before the key's limits are checked, so that a caller without
// authority learns nothing about the key.
func TestUpdate_InvalidAndForbidden_IsForbidden(t *testing.T) {
	service, _ := newClocked(t)
	key, _ := create(t, service, time.Time{})
	long, errNo := strings.Repeat("x", 257), errors.New("no")
	params := apikeys.UpdateParams{Labels: map[string]*string{"a": &long}, If: func(_, _ apikeys.Key) error { return errNo }}
	if _, err := service.Update(t.Context(), account, key.ID, params); !errors.Is(err, errNo) {
		t.Errorf("got %v, want %v", err, errNo)
	}
}
