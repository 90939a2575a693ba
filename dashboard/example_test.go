package dashboard_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/storageapi/storageapi"
	"github.com/storageapi/storageapi/dashboard"
	"github.com/storageapi/storageapi/store/memory"
)

// A host mounts the pages behind its own login, which determines the account.
func Example() {
	api, err := storageapi.NewHandler(storageapi.Config{Store: memory.New()}) // or Path
	if err != nil {
		panic(err)
	}
	defer func() { _ = api.Close() }()

	sessions := map[string]string{"ada's cookie": "acct_1"}
	settings, err := dashboard.New(dashboard.Config{
		API: api,
		Account: func(r *http.Request) (string, error) {
			cookie, err := r.Cookie("session")
			if err != nil {
				return "", errors.New("not logged in")
			}
			return sessions[cookie.Value], nil
		},
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/settings/", settings)

	for _, cookie := range []string{"ada's cookie", "another"} {
		r, w := httptest.NewRequest("GET", "/settings/api-keys", nil), httptest.NewRecorder()
		r.AddCookie(&http.Cookie{Name: "session", Value: cookie})
		mux.ServeHTTP(w, r)
		fmt.Println(cookie, w.Code)
	}
	// Output:
	// ada's cookie 200
	// another 403
}
