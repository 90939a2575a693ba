package apikeys_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
)

func rename(name string) apikeys.UpdateParams { return apikeys.UpdateParams{Name: &name} }

func TestUpdate_ChangesNameOnly(t *testing.T) {
	service, clock := newClocked(t)
	key, token := create(t, service, noon.Add(time.Hour))
	clock.Set(noon.Add(time.Minute))
	accepted(t, service, token.Reveal())
	want := key
	want.Name, want.LastUsedAt = "Ci/Cd 🔑", noon.Add(time.Minute)
	for _, params := range []apikeys.UpdateParams{rename(want.Name), {}} { // no change
		got, err := service.Update(t.Context(), account, key.ID, params)
		if diff := cmp.Diff(want, got, byValue); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	if stored, err := service.Get(t.Context(), account, key.ID); err != nil || !cmp.Equal(want, stored, byValue) {
		t.Errorf("stored is %+v, %v", stored, err)
	}
	accepted(t, service, token.Reveal())
}

func TestUpdate_Invalid_ReturnsError(t *testing.T) {
	service, _ := newClocked(t)
	key, _ := create(t, service, time.Time{})
	for _, name := range []string{"", "a\nb", "\xff", strings.Repeat("x", 129)} {
		var invalid *apierr.ValidationError
		if _, err := service.Update(t.Context(), account, key.ID, rename(name)); !errors.As(err, &invalid) || invalid.Field != "name" {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, who := range [][2]string{{"acct_2", key.ID}, {account, "key_none"}} {
		if _, err := service.Update(t.Context(), who[0], who[1], rename("b")); !errors.Is(err, apierr.ErrNotFound) {
			t.Errorf("%v: %v", who, err)
		}
	}
	if stored, err := service.Get(t.Context(), account, key.ID); err != nil || !cmp.Equal(key, stored, byValue) {
		t.Errorf("stored is %+v, %v", stored, err)
	}
}

// A condition receives the current key. If the condition fails, the key stays unchanged.
func TestConditions(t *testing.T) {
	service, _ := newClocked(t)
	key, token := create(t, service, time.Time{})
	errNot := errors.New("not so")
	named := func(name string) apikeys.Condition {
		return func(before, _ apikeys.Key) error {
			if before.Name != name {
				return fmt.Errorf("%w: %s", errNot, before.Name)
			}
			return nil
		}
	}
	update := func(to string, condition apikeys.Condition) error {
		params := rename(to)
		params.If = condition
		_, err := service.Update(t.Context(), account, key.ID, params)
		return err
	}
	if err := update("b", named(key.Name)); err != nil {
		t.Error(err)
	}
	if err := update("c", named(key.Name)); !errors.Is(err, errNot) {
		t.Errorf("a condition that does not hold: %v", err)
	}
	if _, _, err := service.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{If: named("c")}); !errors.Is(err, errNot) {
		t.Errorf("a condition that does not hold: %v", err)
	}
	accepted(t, service, token.Reveal())
	if _, _, err := service.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{If: named("b")}); err != nil {
		t.Error(err)
	}
	refused(t, service, token.Reveal())
}

// Updates, rotations and a deletion run concurrently. No change may be lost, at most two tokens may
// be valid, and the deleted key must not come back.
func TestChanges_Concurrent_AllTakeEffect(t *testing.T) {
	service := newService(t, newSpy(), apikeys.Config{})
	for range 20 {
		key, first := create(t, service, time.Time{})
		var mu sync.Mutex
		tokens := []apikeys.Token{first}
		var changes sync.WaitGroup
		for i := range 4 {
			changes.Go(func() {
				if _, err := service.Update(t.Context(), account, key.ID, rename(fmt.Sprint("name ", i))); err != nil {
					t.Error(err)
				}
			})
			changes.Go(func() {
				_, token, err := service.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{Grace: time.Hour})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				tokens = append(tokens, token)
				mu.Unlock()
			})
		}
		changes.Wait()
		live := 0
		for _, token := range tokens {
			if _, err := service.Verify(t.Context(), token.Reveal()); err == nil {
				live++
			}
		}
		if got, err := service.Get(t.Context(), account, key.ID); err != nil || got.Name == key.Name || live != 2 {
			t.Errorf("%d tokens are good; the key is %+v, %v", live, got, err)
		}

		changes.Go(func() {
			if err := service.Delete(t.Context(), account, key.ID, apikeys.DeleteParams{}); err != nil {
				t.Error(err)
			}
		})
		for range 2 {
			changes.Go(func() {
				_, token, err := service.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{Grace: time.Hour})
				if err != nil && !errors.Is(err, apierr.ErrNotFound) {
					t.Error(err)
				}
				if err == nil {
					mu.Lock()
					tokens = append(tokens, token)
					mu.Unlock()
				}
			})
		}
		changes.Wait()
		for _, token := range tokens {
			refused(t, service, token.Reveal())
		}
	}
}

// During rotations, an old token must be accepted until its grace period ends, and a new token as
// soon as Rotate has returned it.
func TestVerifyDuringRotations(t *testing.T) {
	service := newService(t, newSpy(), apikeys.Config{})
	key, current := create(t, service, time.Time{})
	for range 100 {
		done := make(chan struct{})
		var verifiers sync.WaitGroup
		for range 2 {
			verifiers.Go(func() {
				for last := false; !last; {
					select {
					case <-done:
						last = true
					default:
					}
					accepted(t, service, current.Reveal())
				}
			})
		}
		_, next := rotate(t, service, key.ID, time.Hour)
		accepted(t, service, next.Reveal())
		close(done)
		verifiers.Wait()
		current = next
	}
}
