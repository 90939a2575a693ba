// Package webhooks registers webhooks and delivers signed events to them, durably and in the host's
// own process:
//
//	hooks, err := webhooks.New(store, webhooks.Config{Events: events})
//	go hooks.Run(ctx)
//	err = hooks.Publish(ctx, webhooks.Event{Account: "acct_1", Data: TeamCreated{ID: "team_1"}})
//
// docs/events.md shows the requests that receivers get, and docs/guarantees.md lists the
// guarantees.
//
// # What a host needs
//
//   - Run the service: [New], [WebhookService], [Config], [Retention], [DefaultRetries].
//   - Declare event types and publish events: [Config.Events], [EventDeclaration], [Event],
//     [Data]. Package alerts declares the types of docs/spec.md, section 6, and publishes such
//     events when the host reports figures.
//   - Manage webhooks: [Webhook], [EventType], [CreateParams], [UpdateParams], [RotateParams],
//     [DeleteParams], [Condition], [WebhookQuery], [WebhookPage], [OffReason].
//   - Inspect and repeat deliveries: [Delivery], [DeliveryState], [DeliveryQuery], [DeliveryPage],
//     [Attempt], [ErrorClass], [Explanation], [Reason], [RecoverParams], [Recovery], [TestEvent],
//     [Stats], [WebhookStats], [LimiterState].
//   - Distinguish errors: the errors of package apierr, and of this package.
//
// Authors of stores read package driver.
//
// # Lists
//
// Each list has two methods that take the same query, one for a page and one for an iterator:
// [WebhookService.List] and [WebhookService.All] for webhooks, [WebhookService.ListEvents] and
// [WebhookService.AllEvents], [WebhookService.ListDeliveries] and [WebhookService.AllDeliveries].
// [WebhookService.AllFailing], [WebhookService.AllOff] and [WebhookService.AllHeld] iterate over
// the webhooks of all accounts, for operators.
//
// # Publishing
//
// [WebhookService.Publish] is a transactional outbox. Once it has returned nil, the event and one
// delivery for each subscribed webhook are stored, in one transaction. Each delivery is then made
// at least once, or ends as a dead letter, which is listed with state [Dead]. Publishing an event
// ID again has no effect. Deliveries are not ordered. Receivers recognize duplicates by the
// webhook-id header, which holds the event's ID.
//
// # Delivering
//
// [WebhookService.Run] makes the deliveries that are due. A delivery succeeds with a 2xx status.
// After any other result it is retried on the backoff schedule of [RetryPolicy.Delays], with
// jitter. A Retry-After header can lengthen a wait to at most 24 hours. Run disables a webhook
// after 410 Gone, and after it has failed continuously for [RetryPolicy.DisableAfter]. Redirects
// are not followed, proxies are not used, and special-purpose addresses are not dialled, even if a
// public name resolves to them.
//
// # Isolation
//
// No receiver gets more requests than it can take, and no receiver takes up the slots that others
// need. There are [Concurrency.Total] slots:
//
//   - Fair queueing: webhooks with due deliveries take turns, round robin.
//   - AIMD concurrency limit: a webhook begins with two concurrent attempts. Success raises the
//     limit up to [Concurrency.PerWebhook], failure halves it.
//   - Circuit breaker: it opens after five consecutive failures. Then only single probes are sent
//     (half-open), every second at first and every minute later, and the backlog waits without
//     using up attempts. After a success, the rate at most doubles each second.
//   - Bulkhead: webhooks that are slow, or whose breaker is open, share a quarter of the slots, and
//     up to three quarters if nearly all webhooks are slow.
//   - Backpressure: the service claims fewer deliveries while it cannot record results.
//
// # Afterwards
//
// [WebhookService.ListDeliveries] lists deliveries with their attempts. [WebhookService.Redeliver]
// repeats one delivery. [WebhookService.Recover] repeats all deliveries in a time range that are
// dead, or were skipped while the webhook was off. [Retention] limits how long events and attempts
// are kept. [WebhookService.Stats], [Config.Observe] and [Config.Logger] are for monitoring.
package webhooks
