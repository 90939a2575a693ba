package apikeys_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/testclock"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/store/memory"
)

// When Verify and Recheck refuse a value, both report the same reason to the host.
func TestVerify_Refused_ReportsReason(t *testing.T) {
	clock := testclock.At(noon)
	s := newService(t, memory.New(), apikeys.Config{Now: clock.Now})
	eternal, eternalToken := create(t, s, time.Time{})
	mortal, mortalToken := create(t, s, noon.Add(2*time.Hour))
	rotate := func(key apikeys.Key) apikeys.Token {
		_, token, err := s.Rotate(t.Context(), account, key.ID, apikeys.RotateParams{Grace: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	rotate(eternal)
	newMortal := rotate(mortal)
	clock.Add(time.Hour)
	of := func(outcome observe.Outcome, key apikeys.Key) auth.Refusal {
		return auth.Refusal{Outcome: outcome, Account: key.Account, KeyID: key.ID}
	}
	check := func(name, token string, want auth.Refusal) {
		t.Helper()
		_, err := s.Verify(t.Context(), token)
		var got *auth.Refusal
		if !errors.As(err, &got) || !errors.Is(err, auth.ErrUnauthorized) || err.Error() != auth.ErrUnauthorized.Error() || *got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	check("malformed", "sak_!", auth.Refusal{Outcome: observe.Malformed})
	check("unknown", numbered(1), auth.Refusal{Outcome: observe.Unknown})
	check("replaced", eternalToken.Reveal(), of(observe.Replaced, eternal))
	check("replaced, of a key that lives", mortalToken.Reveal(), of(observe.Replaced, mortal))
	clock.Add(time.Hour)
	check("expired", newMortal.Reveal(), of(observe.Expired, mortal))
	check("replaced and expired", mortalToken.Reveal(), of(observe.Expired, mortal))
	paused, pausedToken := create(t, s, time.Time{})
	turn(t, s, paused.ID, false)
	check("disabled", pausedToken.Reveal(), of(observe.Disabled, paused))

	_, err := s.Recheck(t.Context(), auth.Principal{Account: account, KeyID: mortal.ID}, newMortal.Reveal())
	var got *auth.Refusal
	if !errors.As(err, &got) || got.Outcome != observe.Expired {
		t.Errorf("Recheck: %v", err)
	}
}

// Each change of a key is reported once, after it has been made. Other calls report nothing.
func TestChangesAreObserved(t *testing.T) {
	var mu sync.Mutex
	var told []audit.Entry
	s := newService(t, memory.New(), apikeys.Config{Observe: observe.Observer{Changed: func(n audit.Entry) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, n)
	}}})
	ctx := audit.WithActor(t.Context(), audit.Actor{Kind: audit.ActorPerson, ID: "eve"})
	key, _, err := s.Create(ctx, account, apikeys.CreateParams{Name: "one", Scopes: readFiles, IdempotencyKey: "1"})
	refused := errors.New("no")
	no := func(apikeys.Key, apikeys.Key) error { return refused }
	_, _, again := s.Create(ctx, account, apikeys.CreateParams{Name: "one", Scopes: readFiles, IdempotencyKey: "1"})
	name := "two"
	_, update := s.Update(ctx, account, key.ID, apikeys.UpdateParams{Name: &name})
	_, same := s.Update(ctx, account, key.ID, apikeys.UpdateParams{Name: &name})
	_, refusal := s.Update(ctx, account, key.ID, apikeys.UpdateParams{If: no})
	_, _, rotate := s.Rotate(ctx, account, key.ID, apikeys.RotateParams{})
	remove := s.Delete(ctx, account, key.ID, apikeys.DeleteParams{})
	if err := errors.Join(err, again, update, same, rotate, remove); err != nil || !errors.Is(refusal, refused) {
		t.Fatal(err, refusal)
	}
	s.Close() // waits until all changes are reported
	var got []audit.Action
	for _, n := range told {
		got = append(got, n.Action)
		if n.Target.ID != key.ID || n.Actor.ID != "eve" || (len(n.Changed) > 0) != (n.Action == audit.KeyChanged) {
			t.Errorf("told %+v", n)
		}
	}
	want := []audit.Action{audit.KeyCreated, audit.KeyChanged, audit.KeyRotated, audit.KeyDeleted}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	if slices.ContainsFunc(told, func(n audit.Entry) bool { return n.ID == "" }) {
		t.Error("what is told is not what is stored")
	}
}
