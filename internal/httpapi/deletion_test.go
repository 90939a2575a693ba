package httpapi_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
)

// TestDeletionIsImmediate deletes a key while clients use it. After the response to the DELETE,
// every new request with the key must be refused.
func TestDeletionIsImmediate(t *testing.T) {
	api := newAPI(t, newClock().config())
	mux := http.NewServeMux()
	mux.Handle("/v2/", api)
	mux.Handle("GET /v2/environments", api.Auth.Require(scopes.EnvironmentsRead, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = w.Write([]byte("[]\n"))
	})))
	h := mount(t, api, mux)
	admin := h.admin(alice)
	const workers, afterwards = 16, 10
	for range 5 {
		id, token := h.key(alice, scopes.EnvironmentsRead)
		var deleted atomic.Bool
		var busy, done sync.WaitGroup
		busy.Add(workers)
		for range workers {
			done.Go(func() {
				used := sync.OnceFunc(busy.Done)
				defer used()
				for refused := 0; refused < afterwards; {
					dead := deleted.Load() // read before the request is sent
					got := h.do("GET", "/v2/environments", token, "")
					switch {
					case got.status == 401 && dead:
						refused++
					case dead, got.status != 200 && got.status != 401:
						t.Errorf("deleted %v: got %d %s", dead, got.status, got.body)
						return
					}
					used()
				}
			})
		}
		busy.Wait()
		h.do("DELETE", keysPath+"/"+id, admin, "").want(204, "")
		deleted.Store(true)
		done.Wait()
	}
}

// A DELETE must delete nothing if its own key is deleted or replaced between the authentication of
// the request and the deletion of the target.
func TestDelete_KeyDiesWhileTheTargetIsRead_IsRefused(t *testing.T) {
	faults := newFaulty()
	h := serve(t, storageapi.Config{Store: faults})
	webhook, err := h.api.Webhooks.Create(t.Context(), alice, anyWebhook)
	if err != nil {
		t.Fatal(err)
	}
	target, _ := h.key(alice, scopes.FilesRead)
	for _, c := range []struct{ path, reads string }{
		{keysPath + "/" + target, "KeyByID"},
		{webhooksPath + "/" + webhook.ID, "WebhookByID"},
	} {
		for name, die := range map[string]func(id string) error{
			"deleted": func(id string) error { return h.api.Keys.Delete(t.Context(), alice, id, apikeys.DeleteParams{}) },
			"replaced": func(id string) error {
				_, _, err := h.api.Keys.Rotate(t.Context(), alice, id, apikeys.RotateParams{})
				return err
			},
		} {
			id, token := h.key(alice, allScopes()...)
			died := false
			faults.before = func(method string) error {
				if method != c.reads || died {
					return nil
				}
				died = true // set first, because die calls the store, which calls this function again
				return die(id)
			}
			got := h.do("DELETE", c.path, token, "")
			faults.before = func(string) error { return nil }
			if got.status != 401 || !died {
				t.Errorf("DELETE %s with a key that is %s before %s: got %d, want 401", c.path, name, c.reads, got.status)
			}
		}
		h.do("GET", c.path, h.admin(alice), "").want(200, "")
	}
}
