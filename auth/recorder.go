package auth

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/scopes"
)

// A Recorder is a [Verifier] that also checks client addresses, and records the scopes that
// requests use and the requests that are refused. apikeys.KeyService implements it. Its methods
// must be fast.
type Recorder interface {
	// VerifyFrom is like Verify for a request from a client address, which is "" if unknown and may
	// be any text; see [ParseAddress].
	VerifyFrom(ctx context.Context, token, address string) (Principal, error)

	// RecordScopes records that a request of p has used the scopes.
	RecordScopes(p *Principal, used scopes.Set)

	// RecordRefusal records a refused request with a known key. address is as for VerifyFrom.
	RecordRefusal(account, keyID, address string, refusal RefusedRequest)
}

// A RefusedRequest is a request that was refused although its key is known.
type RefusedRequest struct {
	At      time.Time       `json:"at"` // UTC, to the millisecond
	Outcome observe.Outcome `json:"outcome"`

	// Route is the method and the pattern of the request's route, such as "GET
	// /v2/api-keys/{id}", and only the method if the pattern is unknown. It is never the path.
	Route string `json:"route"`

	// Missing has the scopes or the resource that the request lacked, separated by spaces.
	Missing string `json:"missing,omitempty"`

	// Network is the network of the client's address: 24 bits of IPv4, or 48 of IPv6. Zero means
	// unknown.
	Network netip.Prefix `json:"network,omitzero"`
}

// RoutePattern names the method and pattern of a request's route in [RefusedRequest]. Default: the
// pattern of [http.ServeMux].
func RoutePattern(pattern func(*http.Request) string) RouteOption {
	return func(r *route) { r.pattern = pattern }
}

// NoteScopes records that the request in ctx used the given scopes, so that people can find scopes
// that a key does not need. [Authenticator.Require] and the routes of the API call it. Call it in a
// handler behind [Authenticator.Handler] that checks scopes itself. Scopes that the key does not
// hold are ignored. Outside a guarded handler it does nothing.
func NoteScopes(ctx context.Context, used scopes.Set) {
	if c, _ := ctx.Value(callerKey{}).(*caller); c != nil && c.guard != nil && c.guard.recorder != nil && c.verified.KeyID != "" {
		c.guard.recorder.RecordScopes(&c.verified, used)
	}
}

// refused records the refusal of a request if its key is known.
func (a *Authenticator) refused(r *http.Request, of *route, account, keyID, address string, outcome observe.Outcome, missing ...string) {
	if a.recorder != nil && keyID != "" {
		a.recorder.RecordRefusal(account, keyID, address, RefusedRequest{Outcome: outcome, Route: of.nameOf(r), Missing: missingText(r, missing)})
	}
}

const maxMissing = 256 // bytes

// missingText returns [RefusedRequest.Missing]. Names of resources come from the request: they may
// be of any length, and even the key itself.
func missingText(r *http.Request, missing []string) string {
	missing = slices.DeleteFunc(slices.Clone(missing), func(name string) bool {
		return !IsResource(name) || name == r.Header.Get("Api-Key") || strings.Contains(r.Header.Get("Authorization"), name)
	})
	text := strings.Join(missing, " ")
	return strings.Clone(text[:min(len(text), maxMissing)]) // does not retain the request
}

// refusedValue records the refusal of a key's value with an error of the Verifier.
func (a *Authenticator) refusedValue(r *http.Request, of *route, address string, err error) {
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		a.refused(r, of, refusal.Account, refusal.KeyID, address, refusal.Outcome)
	}
}

// nameOf returns [RefusedRequest.Route] for a request. Unusual methods could contain a secret.
func (of *route) nameOf(r *http.Request) string {
	pattern := r.Pattern
	if of.pattern != nil {
		pattern = of.pattern(r)
	}
	method, _, found := strings.Cut(pattern, " ")
	if found && !strings.Contains(method, "/") {
		return pattern
	}
	switch method = r.Method; method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "OTHER"
	}
	return strings.TrimSuffix(method+" "+pattern, " ")
}
