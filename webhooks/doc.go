// Package webhooks registers webhooks and delivers events to them, signed and
// durably (SPEC sections 2.2, 4.2, 4.3 and 6).
//
// # Publishing
//
// A host calls [WebhookService.Publish] with an [Event], whose Data is one of
// the payload types: one Go type per event type of SPEC section 6. Once Publish
// has returned nil the event is stored together with one delivery for each
// subscribed webhook; from then on each is delivered at least once or ends,
// visibly, as dead. Receivers tell repetitions by the webhook-id header, which
// is the event's id.
//
// # Delivering
//
// [WebhookService.Run] delivers what is due, in the host's own process, with
// webhooks taking turns. A delivery succeeds with a 2xx status. Whatever else
// happens is retried after the waits of [Config.Retries]; a Retry-After header
// can lengthen a wait, up to 24 hours; 410 Gone turns the webhook off. Redirects
// are not followed, proxies not used, and special-purpose addresses not dialled,
// whatever a name resolves to at that moment.
//
// # Signatures
//
// Every request carries the signature of SPEC section 6 and those of Standard
// Webhooks; package signing describes and verifies both.
//
// # Storage
//
// A [Store] is what a backend implements; package storetest holds the suite
// that every backend passes.
package webhooks
