package observe_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/store/memory"
)

// The Observer prints the outcome of each request, and each change.
func ExampleObserver() {
	api, err := storageapi.NewHandler(storageapi.Config{
		Store: memory.New(),
		Observe: observe.Observer{
			Authenticated: func(_ context.Context, a observe.Authentication) { fmt.Println("request:", a.Outcome) },
			Changed:       func(n audit.Entry) { fmt.Println("changed:", n.Action) },
		},
	})
	if err != nil {
		panic(err)
	}
	api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/v2/api-keys", nil))
	if err := api.Close(); err != nil { // waits for queued calls
		panic(err)
	}
	// Output: request: missing
}
