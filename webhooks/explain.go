package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
)

// An Explanation says why an event was or was not delivered to a webhook.
type Explanation struct {
	EventID, WebhookID string

	Type        EventType // of the event; empty if Reason is ReasonUnknownEvent
	Resource    string    // of the event; empty means none
	PublishedAt time.Time // by the store's clock

	Reason Reason
	State  DeliveryState // empty if the webhook has no delivery of the event

	// LastAttempt is the last attempt of the delivery; nil if there was none.
	LastAttempt *Attempt

	// Since is when the webhook was disabled, for ReasonOff. It is zero if it was disabled before the
	// event was published and has been enabled since.
	Since time.Time

	// Until is the end of the pause, the start of the next probe, or when the next attempt is due. It
	// is zero if the pause has no end, or the probe is due.
	Until time.Time

	// AsOfNow means that Reason follows from the current settings of the webhook. They may differ
	// from the settings when the event was published. ChangedAt is when the webhook's types or
	// resources were last changed since then, or zero if the audit entries of that time are no
	// longer kept, or if the webhook has been changed 10,000 times since.
	AsOfNow   bool
	ChangedAt time.Time

	// Elsewhere means that this process has none of the webhook's pending deliveries in memory:
	// another process delivers them, no process calls Run, or the event was published within the
	// last second. The circuit breaker's state is then not known, and Reason may be a reason after
	// [ReasonCircuitOpen] although the breaker is open.
	Elsewhere bool
}

// A Reason is why an event was or was not delivered to a webhook.
type Reason string

// The reasons of events without a delivery. The first that applies counts.
const (
	ReasonUnknownEvent  Reason = "unknown_event"  // never published, or published longer than [Retention.EventIDs] ago
	ReasonNotSubscribed Reason = "not_subscribed" // the webhook is not subscribed to the type
	ReasonCreatedLater  Reason = "created_later"  // the webhook was created after the event was published
	ReasonPurged        Reason = "purged"         // the records that would show the reason are no longer kept: see [Retention.Attempts] and [Retention.Audit]
	ReasonFiltered      Reason = "filtered"       // the webhook is limited to other resources
	ReasonChangedLater  Reason = "changed_later"  // the webhook would get the event now, but was changed after the event was published
	ReasonThreshold     Reason = "threshold"      // the publisher chose other webhooks for the event: see [Webhook.Threshold]
)

// The reasons of pending deliveries. The first that applies counts, beginning with ReasonFiltered.
const (
	ReasonOff         Reason = "off"          // the webhook is off; if the State is Skipped, it was off when the event was published
	ReasonHeld        Reason = "held"         // see [Webhook.Held]
	ReasonPaused      Reason = "paused"       // see [Webhook.PausedUntil]
	ReasonCircuitOpen Reason = "circuit_open" // the receiver is down: only single probes are sent, until one succeeds
	ReasonRefused     Reason = "refused"      // waits for a retry, because the response to the last attempt was not 2xx
	ReasonFailed      Reason = "failed"       // waits for a retry, because the last attempt got no response
	ReasonWaiting     Reason = "waiting"      // due: waits for its turn, or is being attempted
)

// The reasons of settled deliveries, besides ReasonOff and ReasonFiltered.
const (
	ReasonDelivered Reason = "delivered"
	ReasonGivenUp   Reason = "given_up" // no retries were left, or the response to LastAttempt rules them out
	ReasonExpired   Reason = "expired"  // not delivered within [Retention.Payloads]
)

// Explain returns why the account's event was or was not delivered to the webhook, or
// [apierr.ErrNotFound] if the account has no such webhook. The store does not keep earlier settings
// of a webhook. If they have changed since the event was published, Explain uses the current
// settings and sets AsOfNow. It finds changes in the audit entries. The times of these entries, by
// [Config.Now], are compared with the time of publication, by the store's clock. Explain assumes that
// [Retention] has not changed since the publication.
func (s *WebhookService) Explain(ctx context.Context, account, eventID, webhookID string) (Explanation, error) {
	x := Explanation{EventID: eventID, WebhookID: webhookID, Reason: ReasonUnknownEvent}
	// The event is read before its deliveries, the webhook after them, and the audit entries last,
	// so that a change between two reads appears as a change after the publication.
	event, published, err := s.event(ctx, account, eventID)
	var delivery *Delivery
	if err == nil {
		var all []Delivery
		all, err = s.EventDeliveries(ctx, account, eventID) // ErrNotFound: purged meanwhile
		if i := slices.IndexFunc(all, func(d Delivery) bool { return d.WebhookID == webhookID }); i >= 0 {
			delivery = &all[i]
		}
	}
	if err != nil && !errors.Is(err, apierr.ErrNotFound) {
		return Explanation{}, fmt.Errorf("explain delivery: %w", err)
	}
	webhook, missing := s.Get(ctx, account, webhookID)
	if missing != nil {
		return Explanation{}, fmt.Errorf("explain delivery: %w", missing)
	}
	if err != nil {
		return x, nil
	}
	x.Type, x.Resource, x.PublishedAt = event.Type, event.Resource, published
	now, err := s.store.Now(ctx)
	switch {
	case err != nil:
	case delivery != nil:
		s.explainDelivery(&x, &webhook, delivery, now)
	default:
		err = s.explainAbsence(ctx, &x, &webhook, now)
	}
	if err != nil {
		return Explanation{}, fmt.Errorf("explain delivery: %w", err)
	}
	return x, nil
}

// explainAbsence explains why there is no delivery.
func (s *WebhookService) explainAbsence(ctx context.Context, x *Explanation, w *Webhook, now time.Time) error {
	subscribed := s.Subscribes(w, x.Type)
	kept := func(lifetime time.Duration) bool { return lifetime < 0 || now.Sub(x.PublishedAt) < lifetime }
	switch {
	case !subscribed && !w.SubscribesAll() && !slices.Contains(w.PastEvents, x.Type) && !slices.Contains(w.PastEvents, AllEvents): // never subscribed
		x.Reason = ReasonNotSubscribed
		return nil
	case !w.CreatedAt.Before(x.PublishedAt):
		x.Reason = ReasonCreatedLater
		return nil
	case !kept(s.dispatcher.config.Retention.Attempts):
		x.Reason = ReasonPurged
		return nil
	}
	changed, audited, err := s.filterChanged(ctx, w, x.PublishedAt)
	audited = audited && kept(s.dispatcher.config.Retention.Audit)
	x.ChangedAt, x.AsOfNow = changed, !changed.IsZero() || !audited
	switch {
	case !subscribed:
		x.Reason = ReasonNotSubscribed
	case !w.Resources.Allows(x.Resource):
		x.Reason = ReasonFiltered
	case !changed.IsZero():
		x.Reason = ReasonChangedLater
	case !audited:
		x.Reason, x.AsOfNow = ReasonPurged, false
	default: // an event published to all subscribers would have a delivery
		x.Reason = ReasonThreshold
	}
	return err
}

// An entryLister is the part of [audit.Store] that filterChanged needs.
type entryLister interface {
	ListAuditEntries(ctx context.Context, account string, query audit.Query) (audit.Page, error)
}

// filterChanged returns when the types or resources of a webhook were last changed, or the zero time
// if that was before since. known is false if the newest 10,000 changes do not reach back to since.
func (s *WebhookService) filterChanged(ctx context.Context, w *Webhook, since time.Time) (at time.Time, known bool, err error) {
	store, ok := s.store.(entryLister)
	if !ok {
		return time.Time{}, false, nil
	}
	query := audit.Query{
		Target:  audit.Target{Kind: audit.TargetWebhook, ID: w.ID},
		Actions: []audit.Action{audit.WebhookChanged}, Since: since, Limit: 1000,
	}
	for range 10 {
		page, err := store.ListAuditEntries(ctx, w.Account, query)
		if err != nil {
			return time.Time{}, false, err
		}
		for i := range page.Entries {
			if n := &page.Entries[i]; slices.Contains(n.Changed, "events") || slices.Contains(n.Changed, "eventScopes") || slices.Contains(n.Changed, "resources") {
				return n.At, true, nil
			}
		}
		if page.Next == "" {
			return time.Time{}, true, nil
		}
		query.After = page.Next
	}
	return time.Time{}, false, nil
}

// explainDelivery explains the state of a delivery.
func (s *WebhookService) explainDelivery(x *Explanation, w *Webhook, d *Delivery, now time.Time) {
	x.State = d.State
	var class ErrorClass
	if n := len(d.Attempts); n > 0 {
		x.LastAttempt = &d.Attempts[n-1]
		class = x.LastAttempt.Class
	}
	switch {
	case d.State == Delivered:
		x.Reason = ReasonDelivered
	case d.State == Skipped:
		x.Reason = ReasonOff
		if !w.OffAt.After(x.PublishedAt) {
			x.Since = w.OffAt
		}
	case d.State == Dead && class == ClassExpired:
		x.Reason = ReasonExpired
	case d.State == Dead && class != ClassResource:
		x.Reason = ReasonGivenUp
	case d.State == Dead, !w.Resources.Allows(x.Resource):
		x.Reason = ReasonFiltered
	case !w.Active:
		x.Reason, x.Since = ReasonOff, w.OffAt
	case w.Held:
		x.Reason = ReasonHeld
	case !w.PausedUntil.IsZero():
		if x.Reason = ReasonPaused; w.PausedUntil.Before(NoEnd) {
			x.Until = w.PausedUntil
		}
	default:
		s.explainWait(x, d.NextAttemptAt, class, now)
	}
}

// explainWait explains why a delivery is pending although its webhook is active, not on hold and
// not paused.
func (s *WebhookService) explainWait(x *Explanation, next time.Time, class ErrorClass, now time.Time) {
	limiter := s.dispatcher.scheduler.State(x.WebhookID)
	x.Elsewhere = !limiter.Known
	due := !next.After(now) || !next.After(x.PublishedAt) // the clock may have been set back since
	switch {
	case limiter.Open && (due || limiter.OpenUntil.After(next)):
		if x.Reason = ReasonCircuitOpen; limiter.OpenUntil.After(time.Now()) {
			x.Until = limiter.OpenUntil.UTC().Truncate(time.Millisecond)
		}
		return
	case due, class == "":
		x.Reason = ReasonWaiting
	case class == ClassStatus, class == ClassRedirect:
		x.Reason = ReasonRefused
	default:
		x.Reason = ReasonFailed
	}
	x.Until = next
}

var reasonTexts = map[Reason]string{
	ReasonUnknownEvent:  "The event is not known: it was never published, or its ID is no longer stored",
	ReasonNotSubscribed: "The webhook is not subscribed to the event's type",
	ReasonCreatedLater:  "The webhook was created after the event was published",
	ReasonPurged:        "The event is so old that the records that would tell are no longer stored",
	ReasonFiltered:      "The webhook is limited to other resources than the event's",
	ReasonChangedLater:  "The webhook would get the event now, but did not when it was published",
	ReasonThreshold:     "The event was published only for other webhooks, such as those whose threshold was crossed",
	ReasonOff:           "The webhook is off",
	ReasonHeld:          "The webhook is on hold after a restore of the service",
	ReasonPaused:        "The webhook is paused",
	ReasonCircuitOpen:   "The receiver is down: single probes are sent until one succeeds",
	ReasonRefused:       "The delivery waits for a retry",
	ReasonFailed:        "The delivery waits for a retry",
	ReasonWaiting:       "The delivery waits for its turn",
	ReasonDelivered:     "Delivered",
	ReasonGivenUp:       "Given up",
	ReasonExpired:       "Given up: no attempt succeeded before the event's retention ended",
}

// String returns the explanation as English sentences.
func (x Explanation) String() string {
	at := func(before string, t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return before + t.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	text := reasonTexts[x.Reason]
	switch {
	case !x.Since.IsZero():
		text = "The webhook has been off" + at(" since ", x.Since)
	case x.State == Skipped:
		text = "The webhook was off when the event was published"
	case x.State == Dead && x.Reason == ReasonFiltered:
		text = "The webhook was limited to other resources when the event was due"
	case x.Reason == ReasonPaused:
		text += at(" until ", x.Until)
	default:
		text += at("; the next attempt is due ", x.Until)
	}
	text += "."
	if a := x.LastAttempt; a != nil && x.Reason != ReasonExpired && x.Reason != ReasonFiltered {
		text += fmt.Sprintf(" Attempt %d: ", a.Number)
		switch {
		case a.Class == "":
			text += fmt.Sprintf("accepted with %d.", a.Status)
		case a.Class == ClassStatus, a.Class == ClassRedirect:
			text += fmt.Sprintf("refused with %d.", a.Status)
		default:
			text += a.Error + "."
		}
	}
	if x.AsOfNow {
		text += " The settings of that time are not stored" + at(": they were changed ", x.ChangedAt) + "."
	}
	if x.Elsewhere {
		text += " Another process delivers for the webhook, or none: whether the receiver is down is not known here."
	}
	return text
}
