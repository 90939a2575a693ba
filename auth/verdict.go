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
// [ErrUnauthorized] and reads like it: why is for the host only.
type Refusal struct {
	Outcome        observe.Outcome // Malformed, Unknown, Expired or Replaced; others are told as Unknown
	Account, KeyID string          // whose key it is or was, if that is known
}

// Error returns the text of [ErrUnauthorized].
func (r *Refusal) Error() string { return ErrUnauthorized.Error() }

// Unwrap returns [ErrUnauthorized].
func (r *Refusal) Unwrap() error { return ErrUnauthorized }

// isValid reports whether the outcome is one that a Refusal may have: a Verifier could make up
// any, and each would be a label.
func (r *Refusal) isValid() bool {
	if r == nil {
		return false
	}
	switch r.Outcome {
	case observe.Malformed, observe.Unknown, observe.Expired, observe.Replaced:
		return true
	}
	return false
}

// outcomeOf returns what verifying a value in ctx says.
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

// A verdict is what became of a request so far, for those who look from outside of the guard.
// Nil: nobody does.
type verdict struct {
	tracked *verdict // of the request, if it is tracked

	mu sync.Mutex
	is observe.Authentication // its Outcome is empty before there is any
}

type trackedKey struct{}

// tracking is set once there is a [Track]: before, no request need be asked for its verdict.
var tracking atomic.Bool

// verdict returns a new one for a request, or nil if nobody looks.
func (a *Authenticator) verdict(r *http.Request) *verdict {
	if !a.watched && !tracking.Load() {
		return nil
	}
	return a.newVerdict(r)
}

func (a *Authenticator) newVerdict(r *http.Request) *verdict {
	tracked, _ := r.Context().Value(trackedKey{}).(*verdict)
	if tracked == nil && !a.watched {
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

// again changes the verdict to what verifying the value once more says.
func (v *verdict) again(is observe.Authentication) {
	if v != nil {
		is.Duration = v.get().Duration
		v.set(is)
	}
}

// become changes the outcome.
func (v *verdict) become(outcome observe.Outcome) {
	if v != nil {
		v.change(outcome)
	}
}

func (v *verdict) change(outcome observe.Outcome) {
	is := v.get()
	is.Outcome = outcome
	v.set(is)
}

// tell tells the Observer, and the log, what became of a request.
func (a *Authenticator) tell(r *http.Request, v *verdict) {
	if v != nil {
		a.tellAll(r, v)
	}
}

func (a *Authenticator) tellAll(r *http.Request, v *verdict) {
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

// NoteForbidden notes that the request that ctx belongs to is refused although its key is valid,
// for [observe.Observer.Authenticated] and [Tracked]: as [observe.ScopeMissing].
// [Authenticator.Require] and the routes of the API do so; a host's own handler behind
// [Authenticator.Handler] calls it where it answers 403. Outside of a guarded handler it does
// nothing.
func NoteForbidden(ctx context.Context) {
	if c, _ := ctx.Value(callerKey{}).(*caller); c != nil {
		c.verdict.become(observe.ScopeMissing)
	}
}

// Track returns a handler that lets what is around it see what a guard within next found: an
// access log, say, which names the key by [Tracked].
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
		if r.Context().Value(trackedKey{}) != nil { // by another Track, which would see nothing any more
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), trackedKey{}, new(verdict))))
	})
}

// Tracked returns what a guard has found of the request that ctx belongs to, which is within a
// [Track]; ok is false as long as no guard has seen it. It is to be called once the guarded
// handler has returned. It authenticates nobody: a request that was refused is told as well.
func Tracked(ctx context.Context) (a observe.Authentication, ok bool) {
	v, _ := ctx.Value(trackedKey{}).(*verdict)
	if v == nil {
		return observe.Authentication{}, false
	}
	a = v.get()
	return a, a.Outcome != ""
}
