package auth

import (
	"context"
	"errors"
	"time"

	"github.com/storageapi/storageapi/scopes"
)

// An Action is something that a key asks to do with keys or webhooks.
type Action string

// The actions of the library's own routes.
const (
	ReadKeys      Action = "read keys"      // list keys, get one
	CreateKey     Action = "create key"     // for the caller's account
	UpdateKey     Action = "update key"     // rename it
	RotateKey     Action = "rotate key"     // give it another value
	DeleteKey     Action = "delete key"     // of the caller's account
	ReadWebhooks  Action = "read webhooks"  // list webhooks, get one
	CreateWebhook Action = "create webhook" // for the caller's account
	UpdateWebhook Action = "update webhook" // change it, rotate its secret, test it, send again
	DeleteWebhook Action = "delete webhook" // of the caller's account
)

// An Access is one action on one target of the caller's own account: a target
// in another account is answered 404 before anybody is asked.
type Access struct {
	Action Action

	// Target describes the key or webhook. It is nil when the question is
	// asked in general, before the request's body is read: whether the caller
	// may do this to any target at all.
	Target *Target
}

// A Target is the key or webhook that an [Access] is about.
type Target struct {
	ID        string     // empty for one that does not exist yet
	Scopes    scopes.Set // a key's scopes; for a webhook, the read scope behind each of its events, of an update also past and new ones
	ExpiresAt time.Time  // when a key dies; zero: never
}

// ErrForbidden is returned by an [Authorize] function to refuse.
var ErrForbidden = errors.New("this API key does not have permission for this action")

// An Authorize function decides whether a caller may do something: nil allows,
// an error that wraps [ErrForbidden] is answered 403 FORBIDDEN, any other error
// 500. It must be safe for concurrent use.
//
// Actions with a target are asked about twice: in general, then with the
// target.
type Authorize func(ctx context.Context, caller Principal, access Access) error

// eventScopes are the read scopes behind the event types of SPEC section 6:
// files:read for files.expiring, account:read for all others.
var eventScopes = scopes.Of(scopes.FilesRead, scopes.AccountRead)

// LeastPrivilege is the default [Authorize] function. It needs no scopes beyond
// those of SPEC section 5, which leaves this open:
//
//   - Creating, updating, rotating or deleting a key takes every scope the key
//     has, and a life at least as long: nobody can make, or act on, a key that
//     could do more or live longer than their own. So a key may update and rotate
//     itself; and it may always delete itself.
//   - Creating, updating or deleting a webhook takes the read scope behind each
//     of its events: what it would be told, the caller may also read.
//   - A value that a rotation has replaced manages nothing, for what it did would
//     outlive it: a key could be rotated by another one that it made, and webhooks,
//     also those of a key that it made, live on. Otherwise whoever got hold of it
//     could keep, past the end of its grace, what the rotation was to take away. It
//     may still delete its own key.
//   - Reading keys or webhooks takes account:read.
//
// An unknown action is refused.
func LeastPrivilege(_ context.Context, caller Principal, access Access) error {
	if !leastPrivilege(caller, access) {
		return ErrForbidden
	}
	return nil
}

func leastPrivilege(caller Principal, access Access) bool {
	target := access.Target
	switch access.Action {
	case ReadKeys, ReadWebhooks:
		return caller.Scopes.Has(scopes.AccountRead)
	case CreateKey, UpdateKey, RotateKey:
		return !caller.Replaced && (target == nil || dominates(caller, target))
	case DeleteKey:
		return target == nil || isItself(caller, target) || !caller.Replaced && dominates(caller, target)
	case CreateWebhook, UpdateWebhook, DeleteWebhook:
		if caller.Replaced {
			return false
		}
		if target == nil {
			return caller.Scopes.Intersects(eventScopes)
		}
		return caller.Scopes.Covers(target.Scopes)
	}
	return false
}

// dominates reports whether the caller can do all that the key can, for at least as
// long.
func dominates(caller Principal, key *Target) bool {
	outlives := caller.ExpiresAt.IsZero() || !key.ExpiresAt.IsZero() && !key.ExpiresAt.After(caller.ExpiresAt)
	return outlives && caller.Scopes.Covers(key.Scopes)
}

func isItself(caller Principal, key *Target) bool {
	return key.ID != "" && key.ID == caller.KeyID
}
