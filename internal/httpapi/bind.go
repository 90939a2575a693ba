package httpapi

import (
	"slices"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/webhooks"
)

// A header is something that a handler takes from a request's headers.
type header func(*call) error

// bind takes what a request says: the fields of its body, where the route has one, then
// headers.
func (c *call) bind(body []field, headers ...header) error {
	if c.route.body != noBody {
		if err := decodeObject(c.data, body...); err != nil {
			return err
		}
	}
	for _, h := range headers {
		if err := h(c); err != nil {
			return err
		}
	}
	return nil
}

// fields are those of a body.
func fields(list ...field) []field { return list }

// keyID returns the id of the key that the path names, see [wellFormed].
func (c *call) keyID() string { return wellFormed(id.Key, c.id) }

// webhookID returns the id of the webhook that the path names, see [wellFormed].
func (c *call) webhookID() string { return wellFormed(id.Webhook, c.id) }

// wellFormed returns s if it can be an id of that kind, or else "", which is no id of
// anything: the services find nothing there, and ask no store.
func wellFormed(kind, s string) string {
	if !id.Valid(kind, s) {
		return ""
	}
	return s
}

// idempotencyKey takes the request's Idempotency-Key; empty if it has none. What may be
// in it is for the service to check.
func idempotencyKey(target *string) header {
	return func(c *call) error {
		values, given := c.Header["Idempotency-Key"]
		if !given {
			return nil
		}
		if len(values) > 1 || values[0] == "" {
			return invalid("Idempotency-Key", "must be one value of 1 to 128 visible ASCII characters")
		}
		*target = values[0]
		return nil
	}
}

// ifMatchKey takes the request's If-Match, as a part of the condition on which the
// request does what it does to a key: that the caller may, that the caller's value is
// still what it was when it was verified, and then If-Match. Otherwise a value that is
// replaced at this moment could still rotate its own key.
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
			if before.ID == c.caller.KeyID && !a.credential(c).Matches(before.Hash.Sum, before.Previous.Sum) {
				return auth.ErrCredentialChanged
			}
			return match.check(tagKey(before))
		}
		return nil
	}
}

// mayChangeKey returns the condition that the caller may do what the route is for to the
// key: to the one that there is, or to one that is to be.
func (a *api) mayChangeKey(c *call) apikeys.Condition {
	return func(before, after apikeys.Key) error {
		key := before
		if before.ID == "" {
			key = after
		}
		return a.permitNow(c, &auth.Target{ID: before.ID, Scopes: key.Scopes, ExpiresAt: key.ExpiresAt})
	}
}

// ifMatchWebhook takes the request's If-Match, as a part of the condition on which the
// request does what it does to a webhook: that the caller may, and then If-Match.
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
			return match.check(tagWebhook(&before))
		}
		return nil
	}
}

// mayChangeWebhook returns the condition that the caller may do what the route is for to
// the webhook, as it is and as it would be. To have it sent things, or to say where to,
// takes authority over all that may be sent: also over events of types that it was
// subscribed to before.
func (a *api) mayChangeWebhook(c *call) webhooks.Condition {
	return func(before, after webhooks.Webhook) error {
		types := slices.Concat(before.Events, after.Events)
		if after.ID != "" {
			types = append(types, before.PastEvents...)
		}
		return a.permitNow(c, &auth.Target{ID: before.ID, Scopes: a.webhooks.ReadScopes(types)})
	}
}
