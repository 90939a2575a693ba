package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

func createKeys(t *testing.T, s *postgres.Store, n int64) {
	t.Helper()
	for i := range n {
		if err := s.CreateKey(t.Context(), keyNo(i+1), apikeys.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// finds reports whether a node finds a key by its hash.
func finds(t *testing.T, s *postgres.Store, i int64) bool {
	t.Helper()
	_, err := s.KeyByHash(t.Context(), hashNo(i))
	if err != nil && !errors.Is(err, apikeys.ErrNotFound) {
		t.Fatal(err)
	}
	return err == nil
}

func deleteKey(t *testing.T, s *postgres.Store, i int64) {
	t.Helper()
	if err := s.DeleteKey(t.Context(), "acct", keyNo(i).ID, nil, notices.Notice{}); err != nil {
		t.Fatal(err)
	}
}

// listens runs Wake until the test ends, and returns once the node has listened.
func listens(t *testing.T, s *postgres.Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	woken, ended := make(chan struct{}, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		s.Wake(ctx, func() { woken <- struct{}{} })
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

// What is deleted, rotated or changed on one node is so on another as soon as that
// hears of it.
func TestCachedKeysAreForgotten(t *testing.T) {
	option := inSchema(t)
	a, b := open(t, option, postgres.CacheKeys(10, time.Hour)), open(t, option)
	listens(t, a)
	createKeys(t, b, 3)
	for i := range int64(3) {
		if !finds(t, a, i+1) {
			t.Fatal("a key is not found")
		}
	}
	deleteKey(t, b, 1)
	eventually(t, "a deleted key is not found", func() bool { return !finds(t, a, 1) })

	update := func(i int64, change func(*apikeys.Key)) {
		t.Helper()
		if _, err := b.UpdateKey(t.Context(), "acct", keyNo(i).ID, func(key *apikeys.Key, _ *notices.Notice) error { change(key); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	update(2, func(key *apikeys.Key) { key.Previous, key.Hash = key.Hash, hashNo(20) })
	eventually(t, "the old hash is the previous one", func() bool {
		key, err := a.KeyByHash(t.Context(), hashNo(2))
		return err == nil && key.Hash == hashNo(20) && key.Previous == hashNo(2)
	})
	update(2, func(key *apikeys.Key) { key.Previous = apikeys.Hash{} })
	eventually(t, "the old hash is not found", func() bool { return !finds(t, a, 2) })

	update(3, func(key *apikeys.Key) { key.Scopes = scopes.Of(scopes.FilesRead) })
	eventually(t, "the scopes are the new ones", func() bool {
		key, err := a.KeyByHash(t.Context(), hashNo(3))
		return err == nil && key.Scopes == scopes.Of(scopes.FilesRead)
	})
}

// What a node does not hear of it sees after maxAge.
func TestCachedKeysGrowOld(t *testing.T) {
	const maxAge = 300 * time.Millisecond
	option := inSchema(t)
	a, b := open(t, option, postgres.CacheKeys(10, maxAge)), open(t, option, postgres.PollOnly())
	createKeys(t, b, 1)
	if !finds(t, a, 1) {
		t.Fatal("a key is not found")
	}
	deleteKey(t, b, 1)
	deleted := time.Now()
	cached := 0
	eventually(t, "a deleted key is not found", func() bool {
		asked := time.Now()
		found := finds(t, a, 1)
		if found {
			cached++
		}
		if found && asked.Sub(deleted) > maxAge {
			t.Errorf("a deleted key is found after %v", asked.Sub(deleted))
		}
		return !found
	})
	t.Logf("it was found %d times by then", cached)
}

// A node that may have missed something forgets all.
func TestCachedKeysWithoutListener(t *testing.T) {
	name, option := migratedSchema(t)
	a, quiet := open(t, option, postgres.CacheKeys(10, time.Hour)), open(t, option, postgres.PollOnly())
	listens(t, a)
	createKeys(t, quiet, 1)
	if !finds(t, a, 1) {
		t.Fatal("a key is not found")
	}
	deleteKey(t, quiet, 1)
	if !finds(t, a, 1) {
		t.Fatal("a key that was deleted without notice is not found: it was not cached")
	}
	var cut int
	err := pool(t).QueryRow(t.Context(), `
		select count(pg_terminate_backend(pid)) from pg_stat_activity where query = 'listen ' || $1`,
		pgx.Identifier{"storageapi_" + name}.Sanitize()).Scan(&cut)
	if err != nil || cut != 1 {
		t.Fatalf("cut %d connections, %v, want 1", cut, err)
	}
	eventually(t, "the key is not found", func() bool { return !finds(t, a, 1) })
}

// A slowReader keeps the first answer for a key until it is let go.
type slowReader struct {
	armed     atomic.Bool
	read, let chan struct{}
}

func (r *slowReader) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, r, strings.Contains(data.SQL, "k.hash = $1"))
}

func (r *slowReader) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(r) == true && r.armed.CompareAndSwap(true, false) {
		close(r.read)
		<-r.let
	}
}

func (r *slowReader) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (r *slowReader) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	r.TraceQueryEnd(context.WithValue(ctx, r, strings.Contains(data.SQL, "k.hash = $1")), nil, pgx.TraceQueryEndData{})
}

func (r *slowReader) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// An answer that is under way while the key is deleted, here or elsewhere, is not
// remembered.
func TestCachedKeysStaleAnswer(t *testing.T) {
	for _, where := range []string{"here", "elsewhere"} {
		t.Run(where, func(t *testing.T) {
			r := &slowReader{read: make(chan struct{}), let: make(chan struct{})}
			config := pool(t).Config()
			config.ConnConfig.Tracer = r
			p, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			option := inSchema(t)
			a, err := postgres.New(t.Context(), p, option, postgres.CacheKeys(10, time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = a.Close() })
			b := open(t, option)
			listens(t, a)
			createKeys(t, b, 2)
			if !finds(t, a, 2) {
				t.Fatal("a key is not found")
			}
			r.armed.Store(true)
			answered := make(chan error)
			go func() {
				_, err := a.KeyByHash(context.Background(), hashNo(1))
				answered <- err
			}()
			<-r.read
			if where == "here" {
				deleteKey(t, a, 1)
			} else {
				deleteKey(t, b, 1)
				deleteKey(t, b, 2) // heard of after that of the first
				eventually(t, "the second key is not found", func() bool { return !finds(t, a, 2) })
			}
			close(r.let)
			if err := <-answered; err != nil {
				t.Errorf("KeyByHash before the deletion = %v, want nil", err)
			}
			if finds(t, a, 1) {
				t.Error("a deleted key is found")
			}
		})
	}
}

func TestCacheKeysRefused(t *testing.T) {
	for _, option := range []postgres.Option{
		postgres.CacheKeys(0, time.Second), postgres.CacheKeys(1, 0), postgres.CacheKeys(1, 2*time.Hour),
	} {
		if _, err := postgres.New(t.Context(), pool(t), option); err == nil {
			t.Error("New = nil, want an error")
		}
	}
}

// A second look at a key is at the database, whatever is remembered of it.
func TestRecheckIsNotFromTheCache(t *testing.T) {
	option := inSchema(t)
	a, b := open(t, option, postgres.PollOnly(), postgres.CacheKeys(10, time.Hour)), open(t, option)
	service, err := apikeys.New(a, apikeys.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	key, token, err := service.Create(t.Context(), "acct", apikeys.CreateParams{Name: "key", Scopes: scopes.All()})
	if err != nil {
		t.Fatal(err)
	}
	verified := func() auth.Principal {
		t.Helper()
		p, err := service.Verify(t.Context(), token.Reveal())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := verified()
	if got, err := service.Recheck(t.Context(), p, token.Reveal()); got != p || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := b.DeleteKey(t.Context(), "acct", key.ID, nil, notices.Notice{}); err != nil {
		t.Fatal(err)
	}
	verified() // by the cache
	if got, err := service.Recheck(t.Context(), p, token.Reveal()); !errors.Is(err, auth.ErrUnauthorized) {
		t.Errorf("a key that was deleted elsewhere: got %+v, %v", got, err)
	}
}
