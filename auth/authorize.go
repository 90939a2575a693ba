package auth

import (
	"context"
	"errors"
	"time"

	"github.com/storageapi/storageapi/scopes"
)

// An Action is an operation on keys, webhooks or events that a caller requests.
type Action string

// The actions of the library's own routes.
const (
	ReadKeys      Action = "read keys"      // list keys, or get one
	CreateKey     Action = "create key"     // for the caller's account; also to enable a key, or to let it expire later
	UpdateKey     Action = "update key"     // change a key's name, labels or expiry, disable or enable it
	RotateKey     Action = "rotate key"     // give a key a new value
	DeleteKey     Action = "delete key"     // in the caller's account
	ReadWebhooks  Action = "read webhooks"  // list webhooks, or get one
	CreateWebhook Action = "create webhook" // for the caller's account
	UpdateWebhook Action = "update webhook" // change a webhook, rotate its secret, test it, resend deliveries
	DeleteWebhook Action = "delete webhook" // in the caller's account
	ReadAudit     Action = "read audit"     // list changes to keys and webhooks, and their actors
	ReadEvents    Action = "read events"    // list events, or get the body of one
)

// ReadOnly reports whether the action changes nothing. Hosts use it for callers who may only read.
func (a Action) ReadOnly() bool {
	switch a {
	case ReadKeys, ReadWebhooks, ReadAudit, ReadEvents:
		return true
	}
	return false
}

// An Access is an action on a target in the caller's own account. For a target in another account,
// the API answers 404 without calling the [Authorize] function.
type Access struct {
	Action Action

	// Target describes the key, webhook or events. It is nil in the first check, which happens
	// before the request's body is read and asks whether the caller may perform this action on any
	// target at all.
	Target *Target

	// EventScopes are the read scopes required by all known event types. They are set for actions
	// on webhooks or events.
	EventScopes scopes.Set
}

// A Target is the key, webhook or events of an [Access].
//
// For a key, Scopes are its scopes. For a webhook, Scopes are the read scopes that its events
// require; for an update of a webhook, they include the read scopes of its past and new events. For
// events, Scopes are the read scopes that the event types require.
type Target struct {
	ID        string     // empty if the target does not exist yet, or is all events of some types
	Scopes    scopes.Set // see above
	ExpiresAt time.Time  // when a key expires; zero means never
	Resources Resources  // the resources that the target is limited to; for an update, after the update

	Networks  Networks // the networks that a key is limited to
	RateLimit uint64   // the limit of a key in requests per minute; 0 means none
}

// ErrForbidden is returned by an [Authorize] function that refuses an action.
var ErrForbidden = errors.New("this API key does not have permission for this action")

// A ScopeError is returned by an [Authorize] function if the caller lacks scopes. The 403 then
// lists the scopes in a form that programs can read, see [Authenticator.WriteForbidden]. It wraps
// [ErrForbidden].
type ScopeError struct {
	Required scopes.Set // a caller that also has these scopes may perform the action
}

func (e *ScopeError) Error() string { return ErrForbidden.Error() }

func (e *ScopeError) Unwrap() error { return ErrForbidden }

// An Authorize function decides whether a caller may perform an action. It returns nil to allow
// the action. An error that wraps [ErrForbidden] is answered 403 FORBIDDEN, any other error 500.
// It must be safe for concurrent use.
//
// Authorize is not called for GET /v2/api-keys/self: any valid key may read its own data.
//
// For an action with a target it is called twice: first without the target, then with it. A change
// that enables a key, or lets it expire later, is also an action CreateKey with the changed key as
// the target.
type Authorize func(ctx context.Context, caller Principal, access Access) error

// eventScopes are the read scopes that the event types of docs/spec.md, section 6, require:
// files:read for files.expiring, account:read for all others.
var eventScopes = scopes.Of(scopes.FilesRead, scopes.AccountRead)

// LeastPrivilege is the default [Authorize] function. It works with the scopes of docs/spec.md,
// section 5. That section leaves the rules open, so LeastPrivilege defines them:
//
//   - A key can create, update, rotate and delete keys with at most its own authority: they expire
//     no later, have only scopes that it holds (declared or not), and are limited at least as much
//     in networks and rate. So a key can update and rotate itself. A key can always delete itself.
//   - Creating, updating or deleting a webhook requires the read scope for each of its events ("*"
//     means all), so that a caller subscribes only to events that it may read.
//   - A key that is limited to resources can act only on keys, webhooks and events within them.
//   - A value that a rotation has replaced cannot manage anything except to delete its own key.
//     Otherwise someone with a leaked value could keep access after the grace period, through keys
//     and webhooks that outlive the value.
//   - Reading keys, webhooks or the audit log requires account:read.
//   - Reading events and their bodies requires the same scopes as subscribing to their types.
//
// An unknown action is refused. If more scopes would allow an action, the error is a [*ScopeError].
// To a caller without account:read, it does not reveal the scopes of an existing key or webhook.
func LeastPrivilege(_ context.Context, caller Principal, access Access) error {
	if err := WithinResources(caller, access.Target); err != nil {
		return err
	}
	if leastPrivilege(caller, access) {
		return nil
	}
	required := requiredScopes(caller, access)
	caller.Scopes = union(caller.Scopes, required)
	if leastPrivilege(caller, access) {
		return &ScopeError{required}
	}
	return ErrForbidden
}

// requiredScopes returns the scopes that the access requires. If the caller may not see the
// target's scopes, it returns scopes that usually include them, or none.
func requiredScopes(caller Principal, access Access) scopes.Set {
	target := access.Target
	switch access.Action {
	case ReadKeys, ReadWebhooks, ReadAudit:
		return scopes.Of(scopes.AccountRead)
	}
	if target != nil && (target.ID == "" || caller.Scopes.Has(scopes.AccountRead)) {
		return target.Scopes
	}
	switch access.Action {
	case CreateWebhook, UpdateWebhook, DeleteWebhook, ReadEvents:
		return union(eventScopes, access.EventScopes)
	}
	return scopes.Set{}
}

func union(set, other scopes.Set) scopes.Set {
	for scope := range other.All() {
		set = set.With(scope)
	}
	return set
}

func leastPrivilege(caller Principal, access Access) bool {
	target := access.Target
	switch access.Action {
	case ReadKeys, ReadWebhooks, ReadAudit:
		return caller.Scopes.Has(scopes.AccountRead)
	case CreateKey, UpdateKey, RotateKey:
		return !caller.Replaced && (target == nil || caller.CanManage(*target))
	case DeleteKey:
		return target == nil || isItself(caller, target) || !caller.Replaced && caller.CanManage(*target)
	case CreateWebhook, UpdateWebhook, DeleteWebhook, ReadEvents:
		if caller.Replaced && access.Action != ReadEvents {
			return false
		}
		if target == nil {
			return caller.Scopes.Intersects(eventScopes) || caller.Scopes.Intersects(access.EventScopes)
		}
		return caller.Scopes.Covers(target.Scopes)
	}
	return false
}

func isItself(caller Principal, key *Target) bool {
	return key.ID != "" && key.ID == caller.KeyID
}
