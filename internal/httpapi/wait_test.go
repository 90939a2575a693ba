package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/alerts"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/pipenet"
	"github.com/storageapi/storageapi/internal/testbubble"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/memory"
	"github.com/storageapi/storageapi/webhooks"
)

const waitPath = eventsPath + "?since=1970-01-01&wait=20"

// A waitHost is a host in a testing/synctest bubble, whose clock advances to the next timer when
// all goroutines wait.
type waitHost struct {
	*host
	server *http.Server
	client *http.Client
	active atomic.Int32 // requests being handled
}

// inWaitBubble runs test with a host whose server has the given timeouts.
func inWaitBubble(t *testing.T, read, write time.Duration, test func(*testing.T, *waitHost)) {
	t.Helper()
	testbubble.Run(t, func(t *testing.T) {
		api := newAPI(t, storageapi.Config{Store: memory.New()})
		h := &waitHost{host: &host{t, api, "http://host"}}
		network := pipenet.Listen()
		h.server = &http.Server{ReadTimeout: read, WriteTimeout: write, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.active.Add(1)
			defer h.active.Add(-1)
			api.ServeHTTP(w, r)
		})}
		transport := &http.Transport{DialContext: network.Dial}
		h.client = &http.Client{Transport: transport}
		go func() { _ = h.server.Serve(network) }()
		defer h.server.Close()
		defer transport.CloseIdleConnections()
		test(t, h)
	})
}

// A waitReply is the response to a request that may have waited.
type waitReply struct {
	reply
	err  error
	took time.Duration
}

// get sends a request in the background.
func (h *waitHost) get(ctx context.Context, path, token string) <-chan waitReply {
	got, begun := make(chan waitReply, 1), time.Now()
	r, err := http.NewRequestWithContext(ctx, "GET", h.url+path, nil)
	if err != nil {
		h.Fatal(err)
	}
	r.Header.Set("Api-Key", token)
	go func() {
		response, err := h.client.Do(r)
		if err != nil {
			got <- waitReply{err: err}
			return
		}
		got <- waitReply{reply: read(h, "GET", response), took: time.Since(begun)}
	}()
	synctest.Wait()
	return got
}

// want fails the test unless the response is a page with these events, and came after the given time.
// It returns the path of the next page.
func (r waitReply) want(t testing.TB, took time.Duration, ids ...string) (next string) {
	t.Helper()
	var page struct {
		Data       []struct{ ID string }
		NextCursor string
		HasMore    bool
	}
	if r.err != nil || json.Unmarshal([]byte(r.body), &page) != nil || r.status != 200 || r.took != took || page.NextCursor == "" || page.HasMore {
		t.Fatalf("got %d %s after %v, %v; want %v after %v", r.status, r.body, r.took, r.err, ids, took)
	}
	var got []string
	for _, event := range page.Data {
		got = append(got, event.ID)
	}
	if strings.Join(got, " ") != strings.Join(ids, " ") {
		t.Errorf("got events %v, want %v", got, ids)
	}
	return waitPath + "&cursor=" + page.NextCursor
}

func (h *waitHost) publish(id, resource string) {
	h.Helper()
	event := webhooks.Event{ID: id, Account: alice, Resource: resource, Data: alerts.BalanceLow{Balance: 1, Threshold: 2}}
	if err := h.api.Webhooks.Publish(h.Context(), event); err != nil {
		h.Fatal(err)
	}
}

func TestEvents_Wait_AnswersWhenThereIsAnEvent(t *testing.T) {
	inWaitBubble(t, 0, 0, func(t *testing.T, h *waitHost) {
		admin := h.admin(alice)
		h.publish("evt_1", "")
		next := (<-h.get(t.Context(), waitPath, admin)).want(t, 0, "evt_1")
		waits := h.get(t.Context(), next, admin)
		time.Sleep(5 * time.Second)
		h.publish("evt_2", "")
		next = (<-waits).want(t, 5*time.Second, "evt_2")
		next = (<-h.get(t.Context(), next, admin)).want(t, 20*time.Second)

		// A limited key waits for the events of its resources.
		_, limited, err := h.api.Keys.Create(t.Context(), alice, apikeys.CreateParams{Name: "limited", Scopes: scopes.Specified(), Resources: []string{"env-1"}})
		if err != nil {
			t.Fatal(err)
		}
		waits = h.get(t.Context(), next, limited.Reveal())
		h.publish("evt_3", "")
		h.publish("evt_4", "env-2")
		time.Sleep(4 * time.Second)
		h.publish("evt_5", "env-1")
		(<-waits).want(t, 4*time.Second, "evt_5")
		if other := <-h.get(t.Context(), waitPath, h.admin(bob)); other.status != 200 || strings.Contains(other.body, "evt_") {
			t.Errorf("in another account: %d %s", other.status, other.body)
		}

		for _, wait := range []string{"0", "31", "+1", "1.5", "", "5&wait=5"} {
			got := <-h.get(t.Context(), eventsPath+"?since=1970-01-01&wait="+wait, admin)
			if got.reply.want(400, "VALIDATION_ERROR"); got.field() != "wait" {
				t.Errorf("wait=%s: %s", wait, got.body)
			}
		}
		(<-h.get(t.Context(), eventsPath+"?wait=5", admin)).reply.want(400, "VALIDATION_ERROR")
	})
}

func TestEvents_Wait_EndsEarly(t *testing.T) {
	for name, end := range map[string]func(h *waitHost, id string) error{
		"key deleted": func(h *waitHost, id string) error {
			return h.api.Keys.Delete(h.Context(), alice, id, apikeys.DeleteParams{})
		},
		"key disabled": func(h *waitHost, id string) error {
			_, err := h.api.Keys.Update(h.Context(), alice, id, apikeys.UpdateParams{Enabled: new(bool)})
			return err
		},
		"account erased": func(h *waitHost, _ string) error {
			_, err := h.api.Erase(h.Context(), alice)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWaitBubble(t, 0, 0, func(t *testing.T, h *waitHost) {
				id, token := h.key(alice, scopes.AccountRead)
				waits := h.get(t.Context(), waitPath, token)
				time.Sleep(3 * time.Second)
				if err := end(h, id); err != nil {
					t.Fatal(err)
				}
				got := <-waits
				if got.reply.want(401, "UNAUTHORIZED"); got.took != 3*time.Second {
					t.Errorf("after %v", got.took)
				}
			})
		})
	}
	t.Run("key expires", func(t *testing.T) {
		inWaitBubble(t, 0, 0, func(t *testing.T, h *waitHost) {
			_, token := h.expiringKey(alice, time.Now().Add(5*time.Second), scopes.AccountRead)
			got := <-h.get(t.Context(), waitPath, token)
			if got.reply.want(401, "UNAUTHORIZED"); got.took != 5*time.Second {
				t.Errorf("after %v", got.took)
			}
		})
	})
	t.Run("client leaves", func(t *testing.T) {
		inWaitBubble(t, 0, 0, func(t *testing.T, h *waitHost) {
			ctx, leave := context.WithCancel(t.Context())
			for range 40 {
				h.get(ctx, waitPath, h.admin(alice))
			}
			if got := h.active.Load(); got != 32 {
				t.Errorf("%d requests wait, want 32", got)
			}
			leave()
			if synctest.Wait(); h.active.Load() != 0 {
				t.Errorf("%d requests still wait", h.active.Load())
			}
		})
	})
	t.Run("server shuts down", func(t *testing.T) {
		inWaitBubble(t, 0, 0, func(t *testing.T, h *waitHost) {
			waits := h.get(t.Context(), waitPath, h.admin(alice))
			again := h.get(t.Context(), waitPath, h.admin(alice))
			begun := time.Now()
			if err := h.server.Shutdown(t.Context()); err != nil || time.Since(begun) > time.Second {
				t.Errorf("Shutdown took %v, %v", time.Since(begun), err)
			}
			(<-waits).want(t, 0)
			(<-again).want(t, 0)
		})
	})
	t.Run("server has timeouts", func(t *testing.T) {
		inWaitBubble(t, 2*time.Second, 8*time.Second, func(t *testing.T, h *waitHost) {
			admin := h.admin(alice)
			for range 3 {
				(<-h.get(t.Context(), waitPath, admin)).want(t, 6*time.Second)
			}
		})
	})
}

// A request waits only after Shutdown has begun, since a middleware delays it.
func TestEvents_WaitAfterShutdownBegan_EndsAtOnce(t *testing.T) {
	inWaitBubble(t, 0, 0, func(t *testing.T, h *waitHost) {
		api := h.server.Handler
		h.server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(100 * time.Millisecond)
			api.ServeHTTP(w, r)
		})
		token := h.admin(alice)
		<-h.get(t.Context(), eventsPath+"?since=1970-01-01", token)
		waits := h.get(t.Context(), waitPath, token)
		synctest.Wait()
		begun := time.Now()
		if err := h.server.Shutdown(t.Context()); err != nil || time.Since(begun) > time.Second {
			t.Errorf("Shutdown took %v, %v", time.Since(begun), err)
		}
		if got := <-waits; got.err != nil || got.status != http.StatusOK {
			t.Errorf("the wait was answered %d, %v, want 200", got.status, got.err)
		}
	})
}

func TestEvents_WaitEscapedInQuery_EndsWithKey(t *testing.T) {
	inWaitBubble(t, 0, 0, func(t *testing.T, h *waitHost) {
		id, token := h.key(alice, "account:read")
		waits := h.get(t.Context(), eventsPath+"?since=1970-01-01&w%61it=20", token)
		time.Sleep(3 * time.Second)
		if err := h.api.Keys.Delete(h.Context(), alice, id, apikeys.DeleteParams{}); err != nil {
			t.Fatal(err)
		}
		if got := <-waits; got.status != http.StatusUnauthorized || got.took > 4*time.Second {
			t.Errorf("answered %d after %v, want 401 when the key is deleted", got.status, got.took)
		}
	})
}
