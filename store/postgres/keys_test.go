package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/postgres"
)

// keyNo is a key of that number, with its hash.
func keyNo(i int64) apikeys.Key {
	return apikeys.Key{ID: fmt.Sprint("key_", i), Account: "acct", Name: "key", Scopes: scopes.All(), CreatedAt: time.Now(), Hash: hashNo(i)}
}

// listens has a node listen until the test ends, and returns once it does.
func listens(t *testing.T, s *postgres.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	woken, ended := make(chan struct{}, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		s.Listen(ctx, func() { woken <- struct{}{} })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	<-woken
}

// eventually waits for something that is so soon.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not so: ", what)
		}
	}
}

// A key that was deleted on one node is refused by the next request on another.
func TestDeletedOnAnotherNode(t *testing.T) {
	option := inSchema(t)
	a, b := open(t, option), open(t, option)
	service, err := apikeys.New(a, apikeys.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	key, token, err := service.Create(t.Context(), "acct", apikeys.CreateParams{Name: "key", Scopes: scopes.All()})
	if err != nil {
		t.Fatal(err)
	}
	p, err := service.Verify(t.Context(), token.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := service.Recheck(t.Context(), p, token.Reveal()); got != p || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := b.DeleteKey(t.Context(), "acct", key.ID, nil, notices.Notice{}); err != nil {
		t.Fatal(err)
	}
	if got, err := service.Verify(t.Context(), token.Reveal()); !errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("a key that was deleted elsewhere: got %+v, %v", got, err)
	}
	if got, err := service.Recheck(t.Context(), p, token.Reveal()); !errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("a key that was deleted elsewhere: got %+v, %v", got, err)
	}
}
