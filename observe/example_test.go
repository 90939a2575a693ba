package observe_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/store/memory"
)

// What becomes of requests, and what changes.
func ExampleObserver() {
	api, err := storageapi.NewHandler(storageapi.Config{
		Store: memory.New(),
		Observe: observe.Observer{
			Authenticated: func(_ context.Context, a observe.Authentication) { fmt.Println("request:", a.Outcome) },
			Changed:       func(n notices.Notice) { fmt.Println("changed:", n.Action) },
		},
	})
	if err != nil {
		panic(err)
	}
	api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v2/api-keys", nil))
	if err := api.Close(); err != nil { // waits until all is told
		panic(err)
	}
	// Output: request: missing
}
