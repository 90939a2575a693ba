package apikeys_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
)

func TestRotate_KeepsKeyAndChangesToken(t *testing.T) {
	service, clock := newClocked(t)
	before, old := create(t, service, noon.Add(time.Hour))
	clock.Set(noon.Add(time.Minute))
	after, young := rotate(t, service, before.ID, 10*time.Minute)

	want := before
	want.Hash, want.Previous, want.PreviousExpiresAt = young.Hash(), old.Hash(), noon.Add(11*time.Minute)
	want.Hint, want.PreviousHint, want.RotatedAt = young.Hint(), old.Hint(), noon.Add(time.Minute)
	if diff := cmp.Diff(want, after, byValue); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if stored, err := service.Get(t.Context(), account, before.ID); err != nil || !cmp.Equal(want, stored, byValue) {
		t.Errorf("stored is %+v, %v", stored, err)
	}
	if old.Reveal() == young.Reveal() {
		t.Error("the token did not change")
	}
}

func TestRotateGrace(t *testing.T) {
	never := time.Time{}
	tests := []struct {
		name    string
		expires time.Time
		grace   time.Duration
		oldDies time.Time
	}{
		{"some", never, time.Hour, noon.Add(time.Hour)},
		{"none", never, 0, noon},
		{"less than a millisecond is none", never, time.Microsecond, noon},
		{"within the key's life", noon.Add(2 * time.Hour), time.Hour, noon.Add(time.Hour)},
		{"longer than the key's life", noon.Add(time.Hour), 2 * time.Hour, noon.Add(time.Hour)},
		{"as long as can be", noon.Add(time.Hour), math.MaxInt64, noon.Add(time.Hour)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			service, clock := newClocked(t)
			key, old := create(t, service, test.expires)
			_, young := rotate(t, service, key.ID, test.grace)
			if test.oldDies.After(noon) {
				clock.Set(test.oldDies.Add(-time.Millisecond))
				if p := accepted(t, service, old.Reveal()); !p.ExpiresAt.Equal(test.oldDies) || p.KeyID != key.ID {
					t.Errorf("during its grace the old token is %+v, want it to expire at %v", p, test.oldDies)
				}
				if p := accepted(t, service, young.Reveal()); !p.ExpiresAt.Equal(test.expires) {
					t.Errorf("the new token expires at %v, want %v", p.ExpiresAt, test.expires)
				}
			}
			clock.Set(test.oldDies)
			refused(t, service, old.Reveal())
			if test.expires.IsZero() || test.oldDies.Before(test.expires) {
				accepted(t, service, young.Reveal())
			} else {
				refused(t, service, young.Reveal())
			}
		})
	}
}

func TestKeyHasAtMostTwoTokens(t *testing.T) {
	service, _ := newClocked(t)
	key, first := create(t, service, time.Time{})
	_, second := rotate(t, service, key.ID, time.Hour)
	_, third := rotate(t, service, key.ID, time.Hour)
	refused(t, service, first.Reveal())
	accepted(t, service, second.Reveal())
	accepted(t, service, third.Reveal())

	_, fourth := rotate(t, service, key.ID, 0)
	refused(t, service, second.Reveal())
	refused(t, service, third.Reveal())
	accepted(t, service, fourth.Reveal())
}

func TestRotate_DeadKey_RevivesNothing(t *testing.T) {
	service, clock := newClocked(t)
	key, old := create(t, service, noon.Add(time.Hour))
	clock.Set(noon.Add(2 * time.Hour))
	_, young := rotate(t, service, key.ID, time.Hour)
	refused(t, service, old.Reveal())
	refused(t, service, young.Reveal())
}

func TestRotate_Invalid_ReturnsError(t *testing.T) {
	service, _ := newClocked(t)
	key, token := create(t, service, time.Time{})
	var invalid *apierr.ValidationError
	if _, _, err := service.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{Grace: -1}); !errors.As(err, &invalid) || invalid.Field != "Grace" {
		t.Errorf("a negative grace: %v", err)
	}
	for _, who := range [][2]string{{"acct_2", key.ID}, {account, "key_none"}, {"", key.ID}, {account, ""}} {
		if _, young, err := service.Rotate(t.Context(), who[0], who[1], apikeys.RotateParams{}); !errors.Is(err, apierr.ErrNotFound) || young.Reveal() != "" {
			t.Errorf("%v: %v", who, err)
		}
	}
	accepted(t, service, token.Reveal())
}
