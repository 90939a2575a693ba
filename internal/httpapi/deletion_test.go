package httpapi_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/storageapi/storageapi/scopes"
)

// TestDeletionIsImmediate deletes a key while clients use it: once the DELETE is
// answered, no request that begins later is let through.
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
					dead := deleted.Load() // before the request
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
