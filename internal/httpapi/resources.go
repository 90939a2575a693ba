package httpapi

import (
	"errors"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
)

// For a caller that is limited to resources, keys, webhooks and events outside them do not exist.
// The functions in this file enforce this for single objects; for lists, the services enforce the
// limit.

// sees returns [apierr.ErrNotFound] unless a key or webhook with these resources exists for the
// caller.
func (c *call) sees(resources auth.Resources) error {
	if c.caller.LimitedTo.Covers(resources) {
		return nil
	}
	return apierr.ErrNotFound
}

// seesWebhook is like sees for the account's webhook with this ID. It reads the webhook only if the
// caller is limited.
func (a *api) seesWebhook(c *call, webhookID string) error {
	if c.caller.LimitedTo.IsZero() {
		return nil
	}
	webhook, err := a.webhooks.Get(c.Context(), c.caller.Account, webhookID)
	if err != nil {
		return err
	}
	return c.sees(webhook.Resources)
}

// seesTarget reports whether a key or webhook exists for the caller. It reads each only once.
func (a *api) seesTarget(c *call, target audit.Target) (bool, error) {
	if c.caller.LimitedTo.IsZero() {
		return true, nil
	}
	target = target.Ref()
	err, known := c.seen[target]
	if !known {
		err = apierr.ErrNotFound
		switch target.Kind {
		case audit.TargetKey:
			key, missing := a.keys.Get(c.Context(), c.caller.Account, target.ID)
			if err = missing; err == nil {
				err = c.sees(key.Resources)
			}
		case audit.TargetWebhook:
			err = a.seesWebhook(c, target.ID)
		}
		if c.seen == nil {
			c.seen = make(map[audit.Target]error)
		}
		c.seen[target] = err
	}
	if errors.Is(err, apierr.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// hidesActor reports whether an actor is a key that does not exist for the caller.
func (a *api) hidesActor(c *call, actor audit.Actor) (bool, error) {
	if actor.Kind != audit.ActorKey {
		return false, nil
	}
	there, err := a.seesTarget(c, audit.Target{Kind: audit.TargetKey, ID: actor.ID})
	return !there, err
}

// hideCreator removes the creator from key if the creator is a key that does not exist for the
// caller.
func (a *api) hideCreator(c *call, key *apikeys.Key) error {
	hides, err := a.hidesActor(c, key.CreatedBy)
	if hides {
		key.CreatedBy.ID = ""
	}
	return err
}

// seenEntries returns the audit entries whose targets exist for the caller. It removes the actor of
// an entry if the actor is a key that does not exist for the caller.
func (a *api) seenEntries(c *call, entries []audit.Entry) (seen []audit.Entry, err error) {
	for _, n := range entries {
		there, err := a.seesTarget(c, n.Target)
		if err != nil {
			return nil, err
		}
		hides, err := a.hidesActor(c, n.Actor)
		if err != nil {
			return nil, err
		}
		if hides {
			n.Actor, n.ClientAddress, n.RequestID = audit.Actor{Kind: n.Actor.Kind}, "", ""
		}
		if there {
			seen = append(seen, n)
		}
	}
	return seen, nil
}
