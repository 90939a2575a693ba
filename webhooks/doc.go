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
// # Reporting
//
// Mostly a host does not publish: it reports what it knows, as often as it likes, and
// the service decides when to tell whom. [WebhookService.ReportBalance] tells each
// webhook once that the balance went below its threshold;
// [WebhookService.ReportBandwidth] and [WebhookService.ReportTransactions] tell once a
// period that a limit is approaching and reached; [WebhookService.ReportFiles] tells
// of each file once for each of [Config.FileLeads] before it expires, and with
// [Config.Files] the service asks for the files by itself. What was told is kept in
// the same step as the event that tells it: whenever a process is killed, and however
// many share a store, an alert is neither lost nor told twice. A report that changes
// nothing writes nothing, and costs about a microsecond.
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
// # Isolation
//
// No receiver gets more than it can take, and none takes the slots of others
// ([Config.Concurrency]). A webhook begins with two attempts at a time; success
// raises that up to [Config.PerWebhook], failure halves it. One whose attempts
// take longer than a second, and much longer than usual, is slow; one that fails
// five times in a row is down, and gets one probe at a time, at pauses from a second
// to a minute, while the rest of its backlog waits without using up attempts. The
// slow and the down together hold no more than a quarter of the slots, unless more
// than that part of the webhooks are slow. When a probe succeeds the flow comes back
// at most doubling each second. A webhook whose attempts have all
// failed for [Config.FailingLimit] is turned off.
//
// # History
//
// Every attempt is kept: [WebhookService.Deliveries] lists them by webhook, state
// and time. What was given up, or skipped while the webhook was off, is sent again
// by [WebhookService.Redeliver] or, for a range of time, by
// [WebhookService.Recover], after what is published meanwhile. [Retention] says
// how long all that is kept.
//
// # Changing
//
// [WebhookService.Update] changes a webhook and [WebhookService.RotateSecret] its
// secret, with a grace period in which both secrets sign. Attempts under way go on
// as they are; the later ones are made as the change has it. [WebhookService.SendTest]
// sends one event to see whether it arrives.
//
// # Watching
//
// [WebhookService.Stats] gives the figures of the moment, [Hooks] tell of each
// attempt and of webhooks that fail, and [Config.Logger] of what goes wrong.
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
