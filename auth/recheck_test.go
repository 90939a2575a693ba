package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/auth"
)

// changing is a Verifier whose keys the test replaces.
type changing struct{ keys }

func (c *changing) Verify(ctx context.Context, token string) (auth.Principal, error) {
	return c.keys.Verify(ctx, token)
}

// remembering is a Rechecker. Its Verify reads first, which stands for a cache, and its Recheck
// reads now.
type remembering struct{ first, now keys }

func (r *remembering) Verify(ctx context.Context, token string) (auth.Principal, error) {
	return r.first.Verify(ctx, token)
}

func (r *remembering) Recheck(ctx context.Context, p auth.Principal, token string) (auth.Principal, error) {
	if p != reader {
		return auth.Principal{}, fmt.Errorf("Recheck called with %+v", p)
	}
	return r.now.Verify(ctx, token)
}

func TestRecheck_ReturnsCurrentKey(t *testing.T) {
	replaced, moved, other := reader, reader, reader
	replaced.Replaced, moved.Account, other.KeyID = true, "acct_2", "key_other"
	for _, test := range []struct {
		name  string
		now   keys
		want  auth.Principal
		error error
	}{
		{"unchanged", allKeys, reader, nil},
		{"replaced", keys{"reader": replaced}, replaced, nil},
		{"deleted", keys{}, auth.Principal{}, auth.ErrUnauthorized},
		{"moved to another account", keys{"reader": moved}, auth.Principal{}, auth.ErrUnauthorized},
		{"belongs to another key", keys{"reader": other}, auth.Principal{}, auth.ErrUnauthorized},
	} {
		plain, cache := &changing{allKeys}, &remembering{allKeys, test.now}
		for _, verifier := range []auth.Verifier{plain, cache} {
			a, err := auth.New(verifier, auth.Config{})
			if err != nil {
				t.Fatal(err)
			}
			serve(t, a.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				plain.keys = test.now
				for _, ctx := range []context.Context{r.Context(), auth.WithPrincipal(r.Context(), writer)} {
					if got, err := auth.Recheck(ctx); got != test.want || !errors.Is(err, test.error) {
						t.Errorf("%s, %T: Recheck = %+v, %v, want %+v, %v", test.name, verifier, got, err, test.want, test.error)
					}
				}
			})), request("reader"))
		}
	}
}

// A store failure must not look like an invalid key.
func TestRecheck_VerifierFails_IsNotUnauthorized(t *testing.T) {
	a, err := auth.New(firstGood{}, auth.Config{})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, a.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if got, err := auth.Recheck(r.Context()); got != (auth.Principal{}) || !errors.Is(err, errBroken) || errors.Is(err, auth.ErrUnauthorized) {
			t.Errorf("Recheck = %+v, %v, want %v", got, err, errBroken)
		}
	})), request("broken"))
}

// firstGood accepts every value the first time, but fails when "broken" is rechecked.
type firstGood struct{}

func (firstGood) Verify(context.Context, string) (auth.Principal, error) { return reader, nil }

func (firstGood) Recheck(ctx context.Context, _ auth.Principal, token string) (auth.Principal, error) {
	return allKeys.Verify(ctx, token)
}

func TestRecheck_UnguardedRequest_IsUnauthorized(t *testing.T) {
	for _, ctx := range []context.Context{t.Context(), auth.WithPrincipal(t.Context(), reader)} {
		if got, err := auth.Recheck(ctx); got != (auth.Principal{}) || !errors.Is(err, auth.ErrUnauthorized) {
			t.Errorf("Recheck = %+v, %v, want ErrUnauthorized", got, err)
		}
	}
}

func TestGuardedContext_Printed_HidesKey(t *testing.T) {
	guard, err := auth.New(&changing{allKeys}, auth.Config{})
	if err != nil {
		t.Fatal(err)
	}
	guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		derived, cancel := context.WithCancel(auth.WithPrincipal(r.Context(), auth.Principal{}))
		defer cancel()
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if got := fmt.Sprintf(verb+verb, r.Context(), derived); strings.Contains(got, "reader") {
				t.Errorf("%s prints %s", verb, got)
			}
		}
	})).ServeHTTP(httptest.NewRecorder(), func() *http.Request {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(auth.HeaderName, "reader")
		return r
	}())
}
