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

// refusing is a Verifier that returns a Refusal for the value "expired".
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

// withoutTime makes comparisons ignore durations.
var withoutTime = cmpopts.IgnoreFields(observe.Authentication{}, "Duration")

// Each outcome is reported once, after the handler has returned. An access log outside the guard
// reads the same outcome.
func TestObserver_EachOutcome_IsReportedOnceAndTracked(t *testing.T) {
	var reported []observe.Authentication
	a, err := auth.New(refusing{allKeys}, auth.Config{
		RateLimit: auth.RateLimit{PerSecond: 0.001, Burst: 2, PerAccount: -1}, Logger: slog.New(slog.DiscardHandler),
		Observe: observe.Observer{Authenticated: func(_ context.Context, a observe.Authentication) { reported = append(reported, a) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	reached := false
	guarded := a.Require(scopes.FilesRead, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if reached = true; len(reported) > 0 {
			t.Error("reported before the handler returned")
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
		{"valid again", []string{"reader"}, 200, ok},
		{"too many", []string{"reader"}, 429, observe.Authentication{Outcome: observe.Limited, Account: "acct_1", KeyID: "key_reader"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			reported, reached = nil, false
			var logged observe.Authentication
			tracked := auth.Track(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, seen := auth.Tracked(r.Context()); seen {
					t.Error("Tracked returns an outcome before the guard has run")
				}
				guarded.ServeHTTP(w, r)
				logged, _ = auth.Tracked(r.Context())
			}))
			response, _ := serve(t, tracked, request(step.values...))
			if response.StatusCode != step.status || reached != (step.status == 200) {
				t.Errorf("status = %d, handler called: %v", response.StatusCode, reached)
			}
			if diff := cmp.Diff([]observe.Authentication{step.want}, reported, withoutTime); diff != "" {
				t.Errorf("reported outcomes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(step.want, logged, withoutTime); diff != "" {
				t.Errorf("tracked outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// A disconnected client must not be reported as a failed store.
func TestAuthenticate_ClientDisconnected_ReportsCanceled(t *testing.T) {
	var reported []observe.Outcome
	a, err := auth.New(refusing{allKeys}, auth.Config{Observe: observe.Observer{
		Authenticated: func(_ context.Context, a observe.Authentication) { reported = append(reported, a.Outcome) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.Authenticate(request("reader").WithContext(ctx)); err == nil || len(reported) != 1 || reported[0] != observe.Canceled {
		t.Errorf("reported %q, err %v; want canceled", reported, err)
	}
}

// The outcome must reach the observer and an access log, even through middleware that wraps the
// context.
func TestNoteForbidden_InHandler_ReportsScopeMissing(t *testing.T) {
	var reported []observe.Outcome
	a, err := auth.New(allKeys, auth.Config{Observe: observe.Observer{
		Authenticated: func(_ context.Context, a observe.Authentication) { reported = append(reported, a.Outcome) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	auth.NoteForbidden(t.Context()) // without a request: does nothing
	handler := auth.Track(a.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(auth.WithPrincipal(r.Context(), reader))
		defer cancel()
		auth.NoteForbidden(ctx)
	})))
	serve(t, handler, request("reader"))
	if len(reported) != 1 || reported[0] != observe.ScopeMissing {
		t.Errorf("reported %q, want ScopeMissing", reported)
	}
	if _, ok := auth.Tracked(t.Context()); ok {
		t.Error("Tracked returns an outcome outside Track")
	}
	mustPanic(t, "Track(nil)", func() { auth.Track(nil) })
}

// If the key becomes invalid while the request is running, the new outcome is reported. A client
// that disconnects must not be reported as a failed store.
func TestRecheck_Fails_ReportsNewOutcome(t *testing.T) {
	for name, test := range map[string]struct {
		token string
		want  observe.Authentication
	}{
		"deleted":  {"nobody", observe.Authentication{Outcome: observe.Unknown}},
		"expired":  {"expired", observe.Authentication{Outcome: observe.Expired, Account: "acct_1", KeyID: "key_old"}},
		"canceled": {"reader", observe.Authentication{Outcome: observe.Canceled}},
	} {
		t.Run(name, func(t *testing.T) {
			var reported []observe.Authentication
			known, verify := refusing{allKeys}, "reader"
			a, err := auth.New(verifier(func(ctx context.Context) (auth.Principal, error) { return known.Verify(ctx, verify) }), auth.Config{
				Observe: observe.Observer{Authenticated: func(_ context.Context, a observe.Authentication) { reported = append(reported, a) }},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			serve(t, a.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if verify = test.token; name == "canceled" {
					cancel()
				}
				if _, err := auth.Recheck(r.Context()); err == nil {
					t.Error("Recheck accepts the key")
				}
			})), request("reader").WithContext(ctx))
			if diff := cmp.Diff([]observe.Authentication{test.want}, reported, withoutTime); diff != "" {
				t.Errorf("reported outcomes (-want +got):\n%s", diff)
			}
		})
	}
}

// If an observer panics, the request must succeed and a panic of the handler must stay visible.
func TestObserver_Panics_RequestSucceeds(t *testing.T) {
	var log strings.Builder
	a, err := auth.New(allKeys, auth.Config{
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
		Observe: observe.Observer{Authenticated: func(context.Context, observe.Authentication) { panic("SENTINEL") }},
	})
	if err != nil {
		t.Fatal(err)
	}
	if response, _ := serve(t, a.Handler(http.NotFoundHandler()), request("reader")); response.StatusCode != 404 {
		t.Errorf("status = %d, want 404", response.StatusCode)
	}
	if _, err := a.Authenticate(request("reader")); err != nil {
		t.Errorf("Authenticate: %v", err)
	}
	if strings.Count(log.String(), "panicked") != 2 || strings.Contains(log.String(), "SENTINEL") {
		t.Errorf("log = %s, want two panics without their values", log.String())
	}
	mustPanic(t, "panicking handler", func() {
		a.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })).ServeHTTP(httptest.NewRecorder(), request("reader"))
	})
}

// A verifier is a function that implements Verifier.
type verifier func(context.Context) (auth.Principal, error)

func (v verifier) Verify(ctx context.Context, _ string) (auth.Principal, error) { return v(ctx) }

// Whatever error a host's Verifier returns, the reported outcome must be a known one, and never the
// outcome of an accepted request.
func TestObserver_UnusualVerifiers_ReportsKnownOutcomes(t *testing.T) {
	refuse := func(err error) verifier {
		return func(context.Context) (auth.Principal, error) { return auth.Principal{}, err }
	}
	for name, test := range map[string]struct {
		verifier verifier
		want     observe.Authentication
	}{
		"no outcome":   {refuse(&auth.Refusal{KeyID: "key_1"}), observe.Authentication{Outcome: observe.Unknown}},
		"let through":  {refuse(&auth.Refusal{Outcome: observe.OK}), observe.Authentication{Outcome: observe.Unknown}},
		"made up":      {refuse(&auth.Refusal{Outcome: "banned acct_1"}), observe.Authentication{Outcome: observe.Unknown}},
		"nil, wrapped": {refuse(fmt.Errorf("%w: %w", auth.ErrUnauthorized, (*auth.Refusal)(nil))), observe.Authentication{Outcome: observe.Unknown}},
		"a panic":      {func(context.Context) (auth.Principal, error) { panic("SENTINEL") }, observe.Authentication{Outcome: observe.StoreFailed}},
	} {
		t.Run(name, func(t *testing.T) {
			var reported []observe.Authentication
			a, err := auth.New(test.verifier, auth.Config{Observe: observe.Observer{
				Authenticated: func(_ context.Context, a observe.Authentication) { reported = append(reported, a) },
			}})
			if err != nil {
				t.Fatal(err)
			}
			func() {
				defer func() { _ = recover() }()
				recorder := httptest.NewRecorder()
				a.Handler(unreachable(t)).ServeHTTP(recorder, request("key"))
				if recorder.Code != http.StatusUnauthorized {
					t.Errorf("status = %d", recorder.Code)
				}
			}()
			if diff := cmp.Diff([]observe.Authentication{test.want}, reported, withoutTime); diff != "" {
				t.Errorf("reported outcomes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTrack_Nested_BothSeeOutcome(t *testing.T) {
	a, _ := newAuthenticator(t)
	var outer, inner observe.Authentication
	see := func(next http.Handler, seen *observe.Authentication) http.Handler {
		return auth.Track(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(w, r)
			*seen, _ = auth.Tracked(r.Context())
		}))
	}
	serve(t, see(see(a.Handler(http.NotFoundHandler()), &inner), &outer), request("reader"))
	if outer.KeyID != reader.KeyID || inner.KeyID != reader.KeyID {
		t.Errorf("outer = %+v, inner = %+v; want key %s in both", outer, inner, reader.KeyID)
	}
}
