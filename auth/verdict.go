package auth

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/storageapi/storageapi/internal/observing"
	"github.com/storageapi/storageapi/observe"
)

// A Refusal is the error of a [Verifier] that knows why it refuses a value. It wraps
// [ErrUnauthorized] and has the same text, because clients must not learn the reason.
type Refusal struct {
	Outcome        observe.Outcome // Malformed, Unknown, Expired, Replaced, Disabled or WrongNetwork; any other is reported as Unknown
	Account, KeyID string          // owner and ID of the key, if known
}

func (r *Refusal) Error() string { return ErrUnauthorized.Error() }

func (r *Refusal) Unwrap() error { return ErrUnauthorized }

// isValid reports whether a Refusal may have this outcome. Without the check, a Verifier could set
// any text, and each text would become a metric label.
func (r *Refusal) isValid() bool {
	if r == nil {
		return false
	}
	switch r.Outcome {
	case observe.Malformed, observe.Unknown, observe.Expired, observe.Replaced, observe.Disabled, observe.WrongNetwork:
		return true
	}
	return false
}

// outcomeOf returns the outcome of a call to Verify with ctx that returned p and err.
func outcomeOf(ctx context.Context, p Principal, err error) observe.Authentication {
	var refusal *Refusal
	switch {
	case err == nil:
		return observe.Authentication{Outcome: observe.OK, Account: p.Account, KeyID: p.KeyID, Replaced: p.Replaced}
	case errors.As(err, &refusal) && refusal.isValid():
		return observe.Authentication{
			Outcome: refusal.Outcome, Account: refusal.Account, KeyID: refusal.KeyID, Replaced: refusal.Outcome == observe.Replaced,
		}
	case errors.Is(err, ErrUnauthorized):
		return observe.Authentication{Outcome: observe.Unknown}
	case ctx.Err() != nil:
		return observe.Authentication{Outcome: observe.Canceled}
	}
	return observe.Authentication{Outcome: observe.StoreFailed}
}

// A verdict is the outcome of a request so far. Observers outside the guard read it. It is nil if
// the request is not observed.
type verdict struct {
	tracked *verdict // the verdict that Track added to the request, or nil

	mu sync.Mutex
	is observe.Authentication // Outcome is empty at first
}

type trackedKey struct{}

// tracking is true once [Track] has been called. Before that, requests need no check for tracking.
var tracking atomic.Bool

// verdict returns a new verdict for a request, or nil if it is not observed.
func (a *Authenticator) verdict(r *http.Request) *verdict {
	if !a.observed && !tracking.Load() {
		return nil
	}
	return a.newVerdict(r)
}

func (a *Authenticator) newVerdict(r *http.Request) *verdict {
	tracked, _ := r.Context().Value(trackedKey{}).(*verdict)
	if tracked == nil && !a.observed {
		return nil
	}
	return &verdict{tracked: tracked}
}

func (v *verdict) set(is observe.Authentication) {
	if v == nil {
		return
	}
	v.mu.Lock()
	v.is = is
	v.mu.Unlock()
	v.tracked.set(is)
}

func (v *verdict) get() observe.Authentication {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.is
}

// recheck sets the outcome to the outcome of a recheck and keeps the duration.
func (v *verdict) recheck(is observe.Authentication) {
	if v != nil {
		is.Duration = v.get().Duration
		v.set(is)
	}
}

func (v *verdict) setOutcome(outcome observe.Outcome) {
	if v != nil {
		v.change(outcome)
	}
}

func (v *verdict) change(outcome observe.Outcome) {
	is := v.get()
	is.Outcome = outcome
	v.set(is)
}

// report passes the outcome of a request to the Observer and to the log of refusals.
func (a *Authenticator) report(r *http.Request, v *verdict) {
	if v != nil {
		a.reportVerdict(r, v)
	}
}

func (a *Authenticator) reportVerdict(r *http.Request, v *verdict) {
	is := v.get()
	if is.Outcome == "" { // the Verifier panicked
		is.Outcome = observe.StoreFailed
		v.set(is)
	}
	if a.refusals != nil {
		a.refusals.note(r, is)
	}
	if a.observe != nil {
		defer observing.Recover(a.log)
		a.observe(r.Context(), is)
	}
}

// NoteForbidden records that the request of ctx is refused although its key is valid, so that
// [observe.Observer.Authenticated] and [Tracked] report [observe.ScopeMissing]. missing has the
// scopes or the resource that the request lacked, for [RefusedRequest]. [Authenticator.Require] and
// the routes of the API call it. A host's own handler behind [Authenticator.Handler] must call it
// when it answers 403. Outside a guarded handler it does nothing.
func NoteForbidden(ctx context.Context, missing ...string) {
	if c, _ := ctx.Value(callerKey{}).(*caller); c != nil {
		c.verdict.setOutcome(observe.ScopeMissing)
		if p := &c.verified; c.guard != nil {
			c.guard.refused(c.request, c.route, p.Account, p.KeyID, c.address, observe.ScopeMissing, missing...)
		}
	}
}

// Track wraps next so that middleware between Track and a guard can read the guard's outcome with
// [Tracked]. For example, an access log can log the ID of the key:
//
//	handler := auth.Track(accessLog(mux))
//
// It panics if next is nil.
func Track(next http.Handler) http.Handler {
	if next == nil {
		panic("auth: Track: nil handler")
	}
	tracking.Store(true)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(trackedKey{}) != nil { // keep the outer Track's verdict; with a new one, the outer Track would see no outcome
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), trackedKey{}, new(verdict))))
	})
}

// Tracked returns the outcome of a guard for the request of ctx, which must be inside a [Track].
// Until a guard has checked the request, ok is false. Call Tracked after the guarded handler has
// returned. Refused requests have an outcome, too.
func Tracked(ctx context.Context) (a observe.Authentication, ok bool) {
	v, _ := ctx.Value(trackedKey{}).(*verdict)
	if v == nil {
		return observe.Authentication{}, false
	}
	a = v.get()
	return a, a.Outcome != ""
}
