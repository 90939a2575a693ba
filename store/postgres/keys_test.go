package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/store/postgres"
)

// keyNo returns the ith test key, with its hash.
func keyNo(i int64) driver.Key {
	return driver.Key{ID: fmt.Sprint("key_", i), Account: "acct", Name: "key", Scopes: scopes.Specified(), CreatedAt: time.Now(), Hash: hashNo(i)}
}

// listens makes a node listen until the test ends, and returns once it listens.
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

// eventually waits until is returns true, or fails the test after a while.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not so: ", what)
		}
	}
}

// After a key is deleted on one node, the next request with it on another node is refused.
func TestDeleteKey_OnAnotherNode_NextRequestIsRefused(t *testing.T) {
	option := inSchema(t)
	a, b := open(t, option), open(t, option)
	service, err := apikeys.New(a, apikeys.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	key, token, err := service.Create(t.Context(), "acct", apikeys.CreateParams{Name: "key", Scopes: scopes.Specified()})
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
	if err := b.DeleteKey(t.Context(), "acct", key.ID, nil, audit.Entry{}); err != nil {
		t.Fatal(err)
	}
	if got, err := service.Verify(t.Context(), token.Reveal()); !errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("a key that was deleted elsewhere: got %+v, %v", got, err)
	}
	if got, err := service.Recheck(t.Context(), p, token.Reveal()); !errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("a key that was deleted elsewhere: got %+v, %v", got, err)
	}
}

// Lookups that wait for others share a statement, but not failures. If the context of one lookup
// ends, or its row is unreadable, the others are not affected.
func TestKeyByHash_ManyAtOnce_ShareStatements(t *testing.T) {
	t.Parallel()
	const keys, unreadable, unknown, canceled = 20, 5, 21, 6
	schema, option := migratedSchema(t)
	creator := open(t, option)
	for i := range int64(keys) {
		if err := creator.CreateKey(t.Context(), keyNo(i), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	in(t, schema, fmt.Sprintf(`update keys set scopes = '{"not a scope"}' where id = 'key_%d'`, unreadable))
	config := pool(t).Config()
	config.MaxConns = 1
	only, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(only.Close)
	s := openOn(t, only, option)
	held, err := only.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	lookUp := func(ctx context.Context, i int64, want error) {
		group.Go(func() {
			key, err := s.KeyByHash(ctx, hashNo(i))
			if !errors.Is(err, want) {
				t.Errorf("KeyByHash of key %d = %v, want %v", i, err, want)
			}
			if id := fmt.Sprint("key_", i); err == nil && key.ID != id {
				t.Errorf("KeyByHash returned the key %s, want %s", key.ID, id)
			}
		})
	}
	lookUp(t.Context(), 0, nil)
	eventually(t, "a lookup has a statement of its own", func() bool { statements, _ := s.LookingUp(); return statements == 1 })
	for i := int64(1); i <= keys; i++ {
		switch i {
		case unreadable:
			lookUp(t.Context(), i, scopes.ErrUnknown)
		case canceled:
			lookUp(ctx, i, context.Canceled)
		case keys:
			lookUp(t.Context(), unknown, apierr.ErrNotFound)
		default:
			lookUp(t.Context(), i, nil)
		}
	}
	eventually(t, "the others wait for one statement", func() bool { statements, waiting := s.LookingUp(); return statements == 2 && waiting == keys })
	cancel()
	eventually(t, "a canceled lookup does not wait", func() bool { _, waiting := s.LookingUp(); return waiting == keys-1 })
	held.Release()
	group.Wait()
}

// If the context of a lookup ends while the server runs its shared statement, the lookup returns at
// once. The other lookups get their rows.
func TestKeyByHash_ContextEndsDuringSharedStatement_ReturnsAtOnce(t *testing.T) {
	t.Parallel()
	const keys, canceled = 4, 2
	schema, option := migratedSchema(t)
	creator := open(t, option)
	for i := range int64(keys) {
		if err := creator.CreateKey(t.Context(), keyNo(i), driver.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	config := pool(t).Config()
	config.MaxConns = 2
	two, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(two.Close)
	s := openOn(t, two, option)
	var held []*pgxpool.Conn
	for range config.MaxConns {
		conn, err := two.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	tx, err := pool(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `lock table `+quoted(schema)+`.keys in access exclusive mode`); err != nil {
		t.Fatal(err)
	}

	type result struct {
		id  string
		err error
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var results [keys]chan result
	for i := range int64(keys) {
		results[i] = make(chan result, 1)
		caller := t.Context()
		if i == canceled {
			caller = ctx
		}
		go func() {
			key, err := s.KeyByHash(caller, hashNo(i))
			results[i] <- result{key.ID, err}
		}()
		if i == 0 {
			eventually(t, "a lookup has a statement of its own", func() bool { statements, _ := s.LookingUp(); return statements == 1 })
		}
	}
	eventually(t, "the others wait for one statement", func() bool { statements, waiting := s.LookingUp(); return statements == 2 && waiting == keys-1 })
	for _, conn := range held {
		conn.Release()
	}
	eventually(t, "the shared statement has taken them", func() bool { _, waiting := s.LookingUp(); return waiting == 0 })

	cancel()
	select {
	case got := <-results[canceled]:
		if !errors.Is(got.err, context.Canceled) {
			t.Errorf("KeyByHash after cancel = %q, %v; want context.Canceled", got.id, got.err)
		}
	case <-time.After(time.Minute):
		t.Error("KeyByHash waits for the shared statement after cancel")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range results {
		if i == canceled {
			continue
		}
		if got, want := <-results[i], (result{id: fmt.Sprint("key_", i)}); got != want {
			t.Errorf("KeyByHash of key %d = %q, %v; want %q", i, got.id, got.err, want.id)
		}
	}
}
