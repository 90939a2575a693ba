package auth_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
)

// refusing is a Verifier that says why it refuses "expired".
type refusing struct{ keys }

func (r refusing) Verify(ctx context.Context, token string) (auth.Principal, error) {
	if token == "expired" {
		return auth.Principal{}, fmt.Errorf("wrapped: %w", &auth.Refusal{Outcome: observe.Expired, Account: "acct_1", KeyID: "key_old"})
	}
	if err := ctx.Err(); err != nil {
		return auth.Principal{}, err
	}
	return r.keys.Verify(ctx, token)
}

// withoutTime compares what was told but for how long it took.
var withoutTime = cmpopts.IgnoreFields(observe.Authentication{}, "Duration")

// What becomes of a request is told once, when its handler has returned; an access log around the
// guard sees the same.
func TestOutcomes(t *testing.T) {
	var told []observe.Authentication
	a, err := auth.New(refusing{allKeys}, auth.Config{
		RateLimit: auth.RateLimit{PerSecond: 0.001, Burst: 2, PerAccount: -1}, Logger: slog.New(slog.DiscardHandler),
		Observe: observe.Observer{Authenticated: func(_ context.Context, a observe.Authentication) { told = append(told, a) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	reached := false
	guarded := a.Require(scopes.FilesRead, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if reached = true; len(told) > 0 {
			t.Error("told before the handler has returned")
		}
	}))
	ok := observe.Authentication{Outcome: observe.OK, Account: "acct_1", KeyID: "key_reader"}
	for _, step := range []struct {
		name   string
		values []string
		status int
		want   observe.Authentication
	}{
		{"no key", nil, 401, observe.Authentication{Outcome: observe.Missing}},
		{"two keys", []string{"reader", "writer"}, 401, observe.Authentication{Outcome: observe.Missing}},
		{"unknown", []string{"nobody"}, 401, observe.Authentication{Outcome: observe.Unknown}},
		{"expired", []string{"expired"}, 401, observe.Authentication{Outcome: observe.Expired, Account: "acct_1", KeyID: "key_old"}},
		{"store fails", []string{"broken"}, 500, observe.Authentication{Outcome: observe.StoreFailed}},
		{"no scope", []string{"writer"}, 403, observe.Authentication{Outcome: observe.ScopeMissing, Account: "acct_2", KeyID: "key_writer"}},
		{"good", []string{"reader"}, 200, ok},
		{"good again", []string{"reader"}, 200, ok},
		{"too many", []string{"reader"}, 429, observe.Authentication{Outcome: observe.Limited, Account: "acct_1", KeyID: "key_reader"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			told, reached = nil, false
			var logged observe.Authentication
			tracked := auth.Track(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, seen := auth.Tracked(r.Context()); seen {
					t.Error("seen before the guard")
				}
				guarded.ServeHTTP(w, r)
				logged, _ = auth.Tracked(r.Context())
			}))
			response, _ := serve(t, tracked, request(step.values...))
			if response.StatusCode != step.status || reached != (step.status == 200) {
				t.Errorf("status %d, handler called: %v", response.StatusCode, reached)
			}
			if diff := cmp.Diff([]observe.Authentication{step.want}, told, withoutTime); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(step.want, logged, withoutTime); diff != "" {
				t.Errorf("tracked (-want +got):\n%s", diff)
			}
		})
	}
}

// A client that goes away is not a store that fails.
func TestCanceledIsNoFailure(t *testing.T) {
	var told []observe.Outcome
	a, err := auth.New(refusing{allKeys}, auth.Config{Observe: observe.Observer{
		Authenticated: func(_ context.Context, a observe.Authentication) { told = append(told, a.Outcome) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Authenticate(request("reader").WithContext(ctx)); err == nil || len(told) != 1 || told[0] != observe.Canceled {
		t.Errorf("told %q, %v", told, err)
	}
}

// A handler behind Handler says that it refuses, also through middleware that wraps the context;
// what a guard within another finds is what an access log sees.
func TestNoteForbidden(t *testing.T) {
	var told []observe.Outcome
	a, err := auth.New(allKeys, auth.Config{Observe: observe.Observer{
		Authenticated: func(_ context.Context, a observe.Authentication) { told = append(told, a.Outcome) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	auth.NoteForbidden(t.Context()) // of no request: nothing
	handler := auth.Track(a.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(auth.WithPrincipal(r.Context(), reader))
		defer cancel()
		auth.NoteForbidden(ctx)
	})))
	serve(t, handler, request("reader"))
	if len(told) != 1 || told[0] != observe.ScopeMissing {
		t.Errorf("told %q", told)
	}
	if _, ok := auth.Tracked(t.Context()); ok {
		t.Error("something is tracked outside of Track")
	}
	mustPanic(t, "Track(nil)", func() { auth.Track(nil) })
}

// A key that dies while the request is open is told as what it is then.
func TestRecheckIsTold(t *testing.T) {
	var told []observe.Outcome
	known := keys{"reader": reader}
	a, err := auth.New(known, auth.Config{Observe: observe.Observer{
		Authenticated: func(_ context.Context, a observe.Authentication) { told = append(told, a.Outcome) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	serve(t, a.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		delete(known, "reader")
		if _, err := auth.Recheck(r.Context()); err == nil {
			t.Error("the key is good")
		}
	})), request("reader"))
	if len(told) != 1 || told[0] != observe.Unknown {
		t.Errorf("told %q", told)
	}
}

// An Observer that panics breaks no request, and hides no panic of a handler.
func TestObserverPanics(t *testing.T) {
	var log strings.Builder
	a, err := auth.New(allKeys, auth.Config{
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
		Observe: observe.Observer{Authenticated: func(context.Context, observe.Authentication) { panic("SENTINEL") }},
	})
	if err != nil {
		t.Fatal(err)
	}
	if response, _ := serve(t, a.Handler(http.NotFoundHandler()), request("reader")); response.StatusCode != 404 {
		t.Errorf("status %d", response.StatusCode)
	}
	if _, err := a.Authenticate(request("reader")); err != nil {
		t.Error(err)
	}
	if strings.Count(log.String(), "panicked") != 2 || strings.Contains(log.String(), "SENTINEL") {
		t.Errorf("logged %s", log.String())
	}
	mustPanic(t, "a handler that panics", func() {
		a.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })).ServeHTTP(httptest.NewRecorder(), request("reader"))
	})
}
