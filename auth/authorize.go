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
	ReadKeys      Action = "read keys"      // list keys, get one
	CreateKey     Action = "create key"     // for the caller's account
	UpdateKey     Action = "update key"     // rename it
	RotateKey     Action = "rotate key"     // give it another value
	DeleteKey     Action = "delete key"     // in the caller's account
	ReadWebhooks  Action = "read webhooks"  // list webhooks, get one
	CreateWebhook Action = "create webhook" // for the caller's account
	UpdateWebhook Action = "update webhook" // change it, rotate its secret, test it, resend deliveries
	DeleteWebhook Action = "delete webhook" // in the caller's account
	ReadAudit     Action = "read audit"     // list changes to keys and webhooks, and their actors
	ReadEvents    Action = "read events"    // list events, get the body of one
)

// ReadOnly reports whether the action changes nothing, for callers who may only look.
func (a Action) ReadOnly() bool {
	switch a {
	case ReadKeys, ReadWebhooks, ReadAudit, ReadEvents:
		return true
	}
	return false
}

// An Access is an action on a target in the caller's own account. Requests for a target of
// another account are answered 404 without a call of the [Authorize] function.
type Access struct {
	Action Action

	// Target describes the key, webhook or events. It is nil in the first check, before the
	// request's body is read, which asks whether the caller may perform this action on any target at
	// all.
	Target *Target

	// EventScopes are the read scopes that all known event types require. They are set for actions
	// on webhooks or events.
	EventScopes scopes.Set
}

// A Target is the key, webhook or events of an [Access].
type Target struct {
	ID        string     // empty for a target that does not exist yet, and for all events of some types
	Scopes    scopes.Set // key: its scopes; webhook: the read scopes behind its events, for an update including past and new events; events: the read scopes behind their types
	ExpiresAt time.Time  // when a key expires; zero means never
}

// ErrForbidden is returned by an [Authorize] function that refuses an action.
var ErrForbidden = errors.New("this API key does not have permission for this action")

// A ScopeError is the error of an [Authorize] function for a caller that lacks scopes. The 403
// then names the scopes for programs, see [Authenticator.WriteForbidden]. It wraps [ErrForbidden].
type ScopeError struct {
	Required scopes.Set // a caller that has them, too, may perform the action
}

func (e *ScopeError) Error() string { return ErrForbidden.Error() }

func (e *ScopeError) Unwrap() error { return ErrForbidden }

// An Authorize function decides whether a caller may perform an action. It returns nil to allow
// the action. An error that wraps [ErrForbidden] is answered 403 FORBIDDEN, any other error 500.
// It must be safe for concurrent use.
//
// It is not called for GET /v2/api-keys/self, which returns any valid key's own data.
//
// For an action with a target it is called twice: first without the target, then with it.
type Authorize func(ctx context.Context, caller Principal, access Access) error

// eventScopes are the read scopes that the event types of docs/spec.md, section 6, require:
// files:read for files.expiring, account:read for all others.
var eventScopes = scopes.Of(scopes.FilesRead, scopes.AccountRead)

// LeastPrivilege is the default [Authorize] function. It works with the scopes of docs/spec.md,
// section 5, which leaves these rules open:
//
//   - A key can create, update, rotate and delete keys that expire no later than it does and whose
//     scopes, declared or not, it holds. So it can update and rotate itself. It can always delete
//     itself.
//   - Creating, updating or deleting a webhook requires the read scope for each of
//     its events: a caller subscribes only to events that it may read.
//   - A value that a rotation has replaced cannot manage anything. The keys and webhooks that it
//     creates or changes would outlive it, so a leaked value could keep its access past the end of
//     the grace period. It can still delete its own key.
//   - Reading keys, webhooks or the audit log requires account:read.
//   - Reading events and their bodies requires the read scope for their types, like
//     subscribing to them.
//
// An unknown action is refused. If more scopes would allow an action, the error is a [*ScopeError].
// It does not reveal the scopes of an existing key or webhook to a caller without account:read.
func LeastPrivilege(_ context.Context, caller Principal, access Access) error {
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

// requiredScopes returns scopes that the access requires. If those of the target are hidden from
// the caller, it returns scopes that usually include them, or none.
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
