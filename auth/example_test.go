package auth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/scopes"
)

// oneKey is a verifier for the examples. Hosts use the KeyService of package apikeys.
type oneKey struct{}

func (oneKey) Verify(_ context.Context, token string) (auth.Principal, error) {
	if token != "sak_example" {
		return auth.Principal{}, auth.ErrUnauthorized
	}
	return auth.Principal{Account: "acct_1", KeyID: "key_1", Scopes: scopes.Of(scopes.EnvironmentsRead)}, nil
}

// A host guards its own route.
func Example() {
	authenticator, err := auth.New(oneKey{}, auth.Config{})
	if err != nil {
		panic(err)
	}

	environments := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		caller, _ := auth.PrincipalFrom(r.Context())
		_, _ = io.WriteString(w, "environments of "+caller.Account)
	})
	mux := http.NewServeMux()
	mux.Handle("GET /v2/environments", authenticator.Require(scopes.EnvironmentsRead, environments))
	mux.Handle("POST /v2/environments", authenticator.Require(scopes.EnvironmentsWrite, environments))

	for _, request := range []struct{ method, key string }{
		{http.MethodGet, "sak_example"},
		{http.MethodGet, "sak_wrong"},
		{http.MethodPost, "sak_example"},
	} {
		r := httptest.NewRequest(request.method, "/v2/environments", nil)
		r.Header.Set(auth.HeaderName, request.key)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))
	}

	// Output:
	// 200 environments of acct_1
	// 401 {"error":{"code":"UNAUTHORIZED","message":"The Api-Key header is missing, or the key in it is invalid or expired."}}
	// 403 {"error":{"code":"FORBIDDEN","message":"This requires an API key with the scope environments:write.","requiredScopes":["environments:write"]}}
}

// An upload can take a long time. Once it has arrived, the handler checks that the key is still
// valid.
func ExampleRecheck() {
	authenticator, err := auth.New(oneKey{}, auth.Config{})
	if err != nil {
		panic(err)
	}
	upload := authenticator.Require(scopes.EnvironmentsRead, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20)) // may take an hour
		if err != nil {
			auth.WriteError(w, http.StatusBadRequest, auth.CodeValidation, "The file must arrive whole.")
			return
		}
		caller, err := auth.Recheck(r.Context())
		switch {
		case errors.Is(err, auth.ErrUnauthorized): // deleted in the meantime
			authenticator.WriteUnauthorized(w)
		case err != nil:
			auth.WriteInternal(w)
		default:
			fmt.Fprintf(w, "%d bytes stored for %s", len(content), caller.Account)
		}
	}))

	r := httptest.NewRequest(http.MethodPost, "/v2/files", strings.NewReader("content"))
	r.Header.Set(auth.HeaderName, "sak_example")
	w := httptest.NewRecorder()
	upload.ServeHTTP(w, r)
	fmt.Println(w.Code, strings.TrimSpace(w.Body.String()))

	// Output: 200 7 bytes stored for acct_1
}

// untilDone is a file that can be read until ctx is done.
type untilDone struct {
	io.ReadSeeker
	ctx context.Context
}

func (r untilDone) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx) // such as ErrKeyDeleted
	}
	return r.ReadSeeker.Read(p)
}

// A download ends when its key does, although http.ServeContent does not check the context.
func ExampleAuthenticator_Require_download() {
	authenticator, err := auth.New(oneKey{}, auth.Config{})
	if err != nil {
		panic(err)
	}
	download := authenticator.Require(scopes.EnvironmentsRead, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file := strings.NewReader("content")
		http.ServeContent(w, r, "report.txt", time.Time{}, untilDone{file, r.Context()})
	}))

	r := httptest.NewRequest(http.MethodGet, "/v2/files/1", nil)
	r.Header.Set(auth.HeaderName, "sak_example")
	w := httptest.NewRecorder()
	download.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body)

	// Output: 200 content
}

// A host wraps the default policy: keys of accounts whose name begins with "admin" may do
// everything.
func ExampleAuthorize() {
	var policy auth.Authorize = func(ctx context.Context, caller auth.Principal, access auth.Access) error {
		if strings.HasPrefix(caller.Account, "admin") {
			return nil
		}
		return auth.LeastPrivilege(ctx, caller, access)
	}
	for _, account := range []string{"admin_1", "acct_1"} {
		caller := auth.Principal{Account: account, KeyID: "key_1", Scopes: scopes.Of(scopes.FilesWrite)}
		fmt.Println(policy(context.Background(), caller, auth.Access{Action: auth.ReadKeys}))
	}
	// Output:
	// <nil>
	// this API key does not have permission for this action
}
