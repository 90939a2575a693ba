package apikeys_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
)

// A condition receives the key before and after the change. If the condition fails, the key stays
// unchanged. Conditions are called after validation, and not for a key that does not exist.
func TestCondition_ReceivesOldAndNewKey(t *testing.T) {
	service, _ := newClocked(t)
	key, _ := create(t, service, time.Time{})
	no := errors.New("no")
	var asked []string
	condition := func(name string) apikeys.Condition {
		return func(before, after apikeys.Key) error {
			asked = append(asked, fmt.Sprintf("%s %q %q %v", name, before.Name, after.Name, before.Hash == after.Hash))
			return no
		}
	}
	update := rename("b")
	update.If = condition("update")
	_, err := service.Update(t.Context(), account, key.ID, update)
	_, _, err2 := service.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{If: condition("rotate")})
	err3 := service.Delete(t.Context(), account, key.ID, apikeys.DeleteParams{If: condition("delete")})
	_, _, err4 := service.Create(t.Context(), account, apikeys.CreateParams{Name: "c", Scopes: readFiles, If: condition("create")})
	for _, err := range []error{err, err2, err3, err4} {
		if !errors.Is(err, no) {
			t.Errorf("got %v", err)
		}
	}
	name := fmt.Sprintf("%q", key.Name)
	want := []string{"update " + name + ` "b" true`, "rotate " + name + " " + name + " false", "delete " + name + ` "" false`, `create "" "c" false`}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	page, err := service.List(t.Context(), account, apikeys.KeyQuery{Limit: 2})
	if err != nil || !cmp.Equal([]apikeys.Key{key}, page.Keys, byValue) {
		t.Errorf("it is changed: %+v, %v", page, err)
	}

	asked = nil
	bad := rename("")
	bad.If = condition("invalid")
	_, err = service.Update(t.Context(), account, key.ID, bad)
	if _, ok := errors.AsType[*apierr.ValidationError](err); !ok {
		t.Errorf("an invalid change: %v", err)
	}
	for _, id := range []string{"key_none", "", "\x00"} {
		_, err := service.Update(t.Context(), account, id, update)
		_, err2 := service.Get(t.Context(), account, id)
		for _, err := range []error{err, err2, service.Delete(t.Context(), account, id, apikeys.DeleteParams{If: condition("none")})} {
			if !errors.Is(err, apierr.ErrNotFound) {
				t.Errorf("%q: %v", id, err)
			}
		}
	}
	if asked != nil {
		t.Errorf("asked %q", asked)
	}
}

// If the key changes while a condition is running, the service calls the condition again. A
// condition may call the service.
func TestCondition_KeyChangesMeanwhile_IsCalledAgain(t *testing.T) {
	service, _ := newClocked(t)
	key, _ := create(t, service, time.Time{})
	var asked []string
	meanwhile := func(before, _ apikeys.Key) error {
		asked = append(asked, before.Name)
		if len(asked) > 1 {
			return nil
		}
		_, err := service.Update(t.Context(), account, key.ID, rename("another"))
		return err
	}
	got, _, err := service.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{If: meanwhile})
	if diff := cmp.Diff([]string{key.Name, "another"}, asked); err != nil || diff != "" || got.Name != "another" {
		t.Errorf("%+v, %v; asked (-want +got):\n%s", got, err, diff)
	}
	params := rename("c")
	params.If = func(_, _ apikeys.Key) error {
		return service.Delete(t.Context(), account, key.ID, apikeys.DeleteParams{})
	}
	if _, err := service.Update(t.Context(), account, key.ID, params); !errors.Is(err, apierr.ErrNotFound) {
		t.Errorf("a key that was deleted meanwhile: %v", err)
	}
}

// When a creation is repeated, the condition receives the existing key.
func TestCondition_RepeatedCreate_SeesExistingKey(t *testing.T) {
	service, _ := newClocked(t)
	no := errors.New("no")
	params := apikeys.CreateParams{Name: "a", Scopes: readFiles, IdempotencyKey: "again"}
	key, _, err := service.Create(t.Context(), account, params)
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	params.If = func(before, after apikeys.Key) error {
		if asked = append(asked, before.ID); before.ID != "" && after.ID == before.ID {
			return no
		}
		return nil
	}
	got, token, err := service.Create(t.Context(), account, params)
	if diff := cmp.Diff([]string{"", key.ID}, asked); diff != "" || !errors.Is(err, no) || got.ID != "" || token.Reveal() != "" {
		t.Errorf("%+v, %v; asked (-want +got):\n%s", got, err, diff)
	}
}
