package httpapi

import (
	"errors"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
)

// For a caller that is limited to resources, keys, webhooks and events outside them do not exist.
// The functions in this file decide that for single objects; lists pass the limit to the services.

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

// seenEntries returns the audit entries whose targets exist for the caller. It hides who acted if
// that is a key that does not exist for the caller.
func (a *api) seenEntries(c *call, entries []audit.Entry) ([]audit.Entry, error) {
	if c.caller.LimitedTo.IsZero() {
		return entries, nil
	}
	known := make(map[audit.Target]error)
	sees := func(target audit.Target) (bool, error) {
		target = target.Ref()
		err, ok := known[target]
		if !ok {
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
			known[target] = err
		}
		if errors.Is(err, apierr.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	var seen []audit.Entry
	for _, n := range entries {
		there, err := sees(n.Target)
		if err == nil && there && n.Actor.Kind == audit.ActorKey {
			there, err = sees(audit.Target{Kind: audit.TargetKey, ID: n.Actor.ID})
			if !there {
				n.Actor, n.ClientAddress, n.RequestID, there = audit.Actor{Kind: n.Actor.Kind}, "", "", true
			}
		}
		if err != nil {
			return nil, err
		}
		if there {
			seen = append(seen, n)
		}
	}
	return seen, nil
}
