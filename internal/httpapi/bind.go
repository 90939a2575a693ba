package httpapi

import (
	"slices"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/webhooks"
)

// A header reads a value from a request's headers.
type header func(*call) error

// bind parses the fields of the body, if the route has a body, and then reads the headers. It
// returns the validation errors of all of them.
func (c *call) bind(body []field, headers ...header) error {
	var wrong error
	if c.route.body != noBody {
		wrong = decodeObject(c.data, body...)
	}
	for _, h := range headers {
		wrong = input.JoinInvalid(wrong, h(c))
	}
	return wrong
}

// keyID returns the key ID in the path, or "" if it is malformed, see [wellFormed].
func (c *call) keyID() string { return wellFormed(id.Key, c.id) }

// webhookID returns the webhook ID in the path, or "" if it is malformed, see [wellFormed].
func (c *call) webhookID() string { return wellFormed(id.Webhook, c.id) }

// wellFormed returns s if it has the format of an ID of the given kind, or else "". For "" the
// services return a not-found error without reading the store.
func wellFormed(kind, s string) string {
	if !id.Valid(kind, s) {
		return ""
	}
	return s
}

// idempotencyKey reads the request's Idempotency-Key into target. Without the header, target stays
// empty. The service validates the value.
func idempotencyKey(target *string) header {
	return func(c *call) error {
		values, given := c.Header["Idempotency-Key"]
		if !given {
			return nil
		}
		if len(values) > 1 || values[0] == "" {
			return invalid("Idempotency-Key", "must be a single value of 1 to 128 visible ASCII characters")
		}
		*target = values[0]
		return nil
	}
}

// ifMatchKey sets target to the condition for changing a key. The condition checks the caller's
// authority, then that the caller's own value is still accepted, then If-Match. Without the second
// check, a value that is being replaced could still rotate its own key, and a key that is being
// disabled could enable itself.
func (a *api) ifMatchKey(target *apikeys.Condition) header {
	return func(c *call) error {
		match, err := c.ifMatch()
		if err != nil {
			return err
		}
		may := a.mayChangeKey(c)
		*target = func(before, after apikeys.Key) error {
			if err := may(before, after); err != nil {
				return err
			}
			if before.ID == c.caller.KeyID && !before.Accepts(a.credential(c)) {
				return auth.ErrCredentialChanged
			}
			return match.check(etag((*listed.Key)(&before)))
		}
		return nil
	}
}

// mayChangeKey returns a condition that checks whether the caller may perform the route's action on
// the existing key or, for a creation, on the new key. If the change extends the key, the caller must
// also be allowed to create the changed key.
func (a *api) mayChangeKey(c *call) apikeys.Condition {
	return func(before, after apikeys.Key) error {
		target := func(key *apikeys.Key) *auth.Target {
			return &auth.Target{
				ID: before.ID, Scopes: key.Scopes, ExpiresAt: key.ExpiresAt,
				Resources: key.Resources, Networks: key.AllowedNetworks, RateLimit: key.RateLimit,
			}
		}
		if before.ID == "" {
			return a.permitNow(c, target(&after))
		}
		if err := c.sees(before.Resources); err != nil {
			return err
		}
		if err := a.permitNow(c, target(&before)); err != nil || !apikeys.Extends(before, after) {
			return err
		}
		if err := a.recheck(c); err != nil { // the caller's key may have changed since the body arrived
			return err
		}
		return a.permitTo(c, auth.CreateKey, target(&after))
	}
}

// ifMatchWebhook sets target to the condition for changing a webhook. The condition checks the
// caller's authority, then If-Match.
func (a *api) ifMatchWebhook(target *webhooks.Condition) header {
	return func(c *call) error {
		match, err := c.ifMatch()
		if err != nil {
			return err
		}
		may := a.mayChangeWebhook(c)
		*target = func(before, after webhooks.Webhook) error {
			if err := may(before, after); err != nil {
				return err
			}
			return match.check(etag((*listed.Webhook)(&before)))
		}
		return nil
	}
}

// mayChangeWebhook returns a condition that checks whether the caller may perform the route's
// action on the webhook, both before and after the change. Triggering deliveries or changing the
// URL requires authority over every event that may be sent, including events of types that the
// webhook was subscribed to in the past.
func (a *api) mayChangeWebhook(c *call) webhooks.Condition {
	return func(before, after webhooks.Webhook) error {
		if before.ID != "" {
			if err := c.sees(before.Resources); err != nil {
				return err
			}
		}
		types, resources := slices.Concat(before.Events, after.Events), before.Resources
		if after.ID != "" {
			types, resources = append(types, before.PastEvents...), after.Resources
		}
		return a.permitNow(c, &auth.Target{ID: before.ID, Scopes: a.webhooks.ReadScopes(types, slices.Concat(before.EventScopes, after.EventScopes)...), Resources: resources})
	}
}
