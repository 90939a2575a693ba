// Package webhooks registers webhooks and delivers signed events to them, durably and in
// the host's own process:
//
//	hooks, err := webhooks.New(store, webhooks.Config{})
//	go hooks.Run(ctx)
//	err = hooks.Publish(ctx, webhooks.Event{Account: "acct_1", Data: webhooks.BalanceLow{Balance: balance, Threshold: threshold}})
//
// docs/events.md shows what receivers get, docs/guarantees.md what is promised.
//
// # What a host needs
//
//   - To run it: [New], [WebhookService], [Config], [Retention], [DefaultRetries].
//   - To publish: [Event], [Data] and its types [FilesExpiring] with [ExpiringFile], [BalanceLow] with [Amount] and
//     [ParseAmount], [BandwidthLimitApproaching], [BandwidthLimitReached], [TransactionsLimitApproaching] and
//     [TransactionsLimitReached]. To publish events of its own: [Config.Events], [EventDeclaration].
//   - To report instead: [Metric], [FileSource], [StoredFile].
//   - To manage webhooks: [Webhook], [EventType], [EventTypes], [CreateParams], [UpdateParams],
//     [RotateParams], [DeleteParams], [Condition], [Page], [WebhookPage], [OffReason].
//   - To look at deliveries, and make some again: [Delivery], [DeliveryState], [DeliveryQuery], [DeliveryPage], [Attempt],
//     [ErrorClass], [RecoverParams], [Recovery], [TestEvent], [Stats], [WebhookStats], [LimiterState].
//   - To tell errors apart: [ValidationError], [LimitError] and the errors whose names begin with Err.
//
// All else is for authors of stores: see [Store].
//
// # Publishing
//
// [WebhookService.Publish] is a transactional outbox. Once it has returned nil, the event
// and one delivery for each subscribed webhook are stored, in one transaction. Each
// delivery is then made at least once, or ends as a dead letter: visibly, in state
// [Dead]. Publishing an event id again is publishing the same event. Deliveries have no
// order, and receivers tell repetitions by the webhook-id header, the event's id.
//
// # Reporting
//
// A host can report what it knows instead, as often as it likes; the service decides what
// to publish. [WebhookService.ReportBalance] notifies each webhook once when the balance
// falls below its threshold. [WebhookService.ReportBandwidth] and
// [WebhookService.ReportTransactions] notify once a period that a limit is approaching and
// that it is reached. [WebhookService.ReportFiles] notifies of each file once for each of
// [Alerts.FileLeads] before it expires; with [Alerts.Files] the service asks for the files
// itself. What was notified is stored in the same transaction as its event, under a
// deduplication key where there is one for each file: a process that is killed loses no
// alert and repeats none, and neither do several that share a store. A report that changes
// nothing writes nothing.
//
// # Delivering
//
// [WebhookService.Run] delivers what is due. A delivery succeeds with a 2xx status. Any
// other result is retried on the backoff schedule of [RetryPolicy.Delays], with jitter. A
// Retry-After header lengthens a wait, up to 24 hours; 410 Gone turns the webhook off, and
// so does nothing but failures for [RetryPolicy.DisableAfter]. Redirects are not followed,
// proxies are not used, and special-purpose addresses are not dialled, whichever name
// resolves to them.
//
// # Isolation
//
// No receiver gets more than it can take, and none takes the slots of others, of which
// there are [Concurrency.Total]:
//
//   - Fair queueing: webhooks with due deliveries take turns, round robin.
//   - AIMD concurrency limit: a webhook begins with two attempts at a time. Success raises
//     that up to [Concurrency.PerWebhook], failure halves it.
//   - Circuit breaker: it opens after five failures in a row. The half-open probe is one
//     attempt, every second at first and every minute later; the backlog waits without
//     using up attempts. After a success the flow at most doubles each second.
//   - Bulkhead: webhooks that are slow, or whose breaker is open, share a quarter of the
//     slots, and up to three quarters if nearly all webhooks are slow.
//   - Backpressure: while results cannot be recorded, less is claimed.
//
// # Afterwards
//
// [WebhookService.Deliveries] lists deliveries with their attempts.
// [WebhookService.Redeliver] makes one again; [WebhookService.Recover] makes all of a range
// of time again that are dead, or were skipped while the webhook was off. [Retention] says
// how long events and attempts are kept. [WebhookService.Stats], [Config.Observe] and
// [Config.Logger] are for watching.
package webhooks
