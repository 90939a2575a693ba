package storageapi_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
)

// A listener provides a Notify function and records its calls.
type listener struct {
	mu    sync.Mutex
	fails bool
	told  []string
}

func (l *listener) notify(_ context.Context, n audit.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fails {
		return errors.New("down")
	}
	l.told = append(l.told, string(n.Action))
	return nil
}

func (l *listener) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if diff := cmp.Diff(want, l.told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	l.told = nil
}

// The host must be notified of all changes since its first start with Notify, including changes
// made while it was down, and of keys that are about to expire.
func TestNotify(t *testing.T) {
	testbubble.Run(t, func(t *testing.T) {
		store, l := memory.New(), &listener{}
		start := func(notify func(context.Context, audit.Entry) error) (*storageapi.Handler, func()) {
			api, err := storageapi.NewHandler(storageapi.Config{Store: store, Notify: notify, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			over := make(chan error, 1)
			go func() { over <- api.Run(ctx) }()
			return api, func() {
				cancel()
				if err := <-over; err != nil {
					t.Error(err)
				}
				if err := api.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		create := func(api *storageapi.Handler, life time.Duration) apikeys.Key {
			key, _, err := api.Keys.Create(t.Context(), "acct", apikeys.CreateParams{Name: "a", Scopes: scopes.Specified(), ExpiresAt: time.Now().Add(life)})
			if err != nil {
				t.Fatal(err)
			}
			return key
		}
		api, stop := start(nil)
		create(api, 300*24*time.Hour)
		time.Sleep(time.Minute)
		stop()

		api, stop = start(l.notify)
		key := create(api, 14*24*time.Hour+time.Minute)
		time.Sleep(2 * time.Second)
		l.want(t, "key.created")
		time.Sleep(time.Hour + time.Minute)
		l.want(t, "key.expiring")
		l.fails = true
		if err := api.Keys.Delete(t.Context(), "acct", key.ID, apikeys.DeleteParams{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		stop()
		l.want(t)
		l.fails = false
		time.Sleep(24 * time.Hour)
		_, stop = start(l.notify)
		time.Sleep(2 * time.Second)
		l.want(t, "key.deleted")
		page, err := api.Audit.List(t.Context(), "acct", audit.Query{Limit: 9})
		if err != nil || len(page.Entries) != 4 {
			t.Errorf("the audit log has %d lines, want 4: %v", len(page.Entries), err)
		}
		stop()
	})
}

// The host's own route can attribute changes to a person.
func TestAttribute(t *testing.T) {
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	r := httptest.NewRequest("POST", "/", strings.NewReader(""))
	r.RemoteAddr = "[2001:db8::1]:443"
	ctx := api.Attribute(r, audit.Actor{Kind: audit.ActorPerson, ID: "mia"})
	if _, _, err := api.Keys.Create(ctx, "acct", apikeys.CreateParams{Name: "a", Scopes: scopes.Specified()}); err != nil {
		t.Fatal(err)
	}
	page, err := api.Audit.List(t.Context(), "acct", audit.Query{Limit: 9})
	if err != nil || len(page.Entries) != 1 {
		t.Fatalf("%v, %v", page, err)
	}
	if n := page.Entries[0]; n.Actor != (audit.Actor{Kind: audit.ActorPerson, ID: "mia"}) || n.ClientAddress != "2001:db8::1" {
		t.Errorf("%+v", n)
	}
}
