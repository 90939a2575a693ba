package webhooks

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/webhooks/internal/alerting"
)

// ReportBalance reports an account's balance, as often as the host likes: a report that changes
// nothing writes nothing. Each webhook of the account that subscribes to balance.low, even an
// inactive one, is notified once when the balance is below its [Webhook.BalanceThreshold], or else
// [Alerts.DefaultBalanceThreshold]. It is notified again only after a report at or above that
// threshold plus [Alerts.BalanceHysteresis]. A webhook that is created or changed later is notified
// immediately if the last reported balance is below its threshold, at most once in five seconds.
//
// When it returns nil, the resulting alerts are stored like events by [WebhookService.Publish].
// When it returns an error that is not a [*ValidationError], they may or may not be stored. Report
// again to be sure: nothing is notified twice. Concurrent reports have the effect of sequential
// reports, in any order.
//
// A balance that causes no alert may be kept in memory. After a crash an earlier report, which
// differs by at most a 64th, applies until the next report.
func (s *WebhookService) ReportBalance(ctx context.Context, account string, balance Amount) error {
	return s.report(ctx, account, MetricBalance, func(step *AlertStep) error {
		return s.decideBalance(step, account, step.Due, s.alerts.ReportBalance(step.State, step.Due, uint64(balance), step.balanceSubscribers))
	})
}

// ReportBandwidth reports how many bytes of its limit an account has used in a period, as often as
// the host likes: a report that changes nothing writes nothing. It publishes
// bandwidth.limit_approaching when the use reaches each of [Alerts.ApproachingRatios], and
// bandwidth.limit_reached when it reaches the limit, each once per period; several at once in this
// order. A limit of 0 means unlimited. If the limit is higher than in the previous report, all of
// them can be sent again in the same period.
//
// The period is the host's name for the time span of the limit, 1 to 64 bytes without control
// characters. A later period must sort after earlier ones, byte by byte, as "2026-11" does after
// "2026-10": a report for an earlier period than the last changes nothing. A period that sorts too
// high would silence later ones. Therefore it must have the same length as the previous one and
// digits in the same places, until [WebhookService.ForgetPeriod] is called; and a month (2026-11)
// or a day (2026-11-30) must begin within 45 days from now. Otherwise the report is a
// [*ValidationError] for period, and changes nothing.
//
// Errors and concurrent reports are as with [WebhookService.ReportBalance].
func (s *WebhookService) ReportBandwidth(ctx context.Context, account string, usedBytes, limitBytes int64, period string) error {
	return s.reportUsage(ctx, account, MetricBandwidth, usedBytes, limitBytes, period, func(level uint32) Data {
		if level == alerting.Reached {
			return BandwidthLimitReached{usedBytes, limitBytes, period}
		}
		return BandwidthLimitApproaching{usedBytes, limitBytes, period, alerting.Ratio(level)}
	})
}

// ReportTransactions reports how many transactions of its limit an account has made in a period. It
// publishes transactions.limit_approaching and transactions.limit_reached by the rules of
// [WebhookService.ReportBandwidth].
func (s *WebhookService) ReportTransactions(ctx context.Context, account string, used, limit int64, period string) error {
	return s.reportUsage(ctx, account, MetricTransactions, used, limit, period, func(level uint32) Data {
		if level == alerting.Reached {
			return TransactionsLimitReached{used, limit, period}
		}
		return TransactionsLimitApproaching{used, limit, period, alerting.Ratio(level)}
	})
}

func (s *WebhookService) reportUsage(ctx context.Context, account string, metric Metric, used, limit int64, period string, data func(level uint32) Data) error {
	switch {
	case used < 0:
		return invalid("used", "must not be negative")
	case limit < 0:
		return invalid("limit", "must not be negative; 0 is no limit")
	case period == "" || len(period) > 64 || !input.PlainText(period):
		return invalid("period", "must be 1 to 64 bytes of UTF-8 without control characters")
	}
	return s.report(ctx, account, metric, func(step *AlertStep) error {
		decision, refused := s.alerts.ReportUsage(step.State, alerting.Usage{Used: used, Limit: limit, Period: period}, s.now)
		if refused != "" {
			return invalid("period", refused)
		}
		step.State = decision.State
		for _, level := range decision.Levels {
			now := s.now()
			if err := s.fire(step, s.ids.New(id.Event, now), account, "", now, data(level)); err != nil {
				return err
			}
		}
		return nil
	})
}

// ForgetPeriod clears the reports of an account's [MetricBandwidth] or [MetricTransactions], for a
// host that changes its period names. The next report may use any name, and notifies about all
// levels reached by then, even about levels notified before.
//
// It returns a [*ValidationError] for another metric, and nil if there were no reports. After any
// other error the reports may or may not be cleared: call it again.
func (s *WebhookService) ForgetPeriod(ctx context.Context, account string, metric Metric) error {
	if metric != MetricBandwidth && metric != MetricTransactions {
		return cmp.Or(checkAccount(account), invalid("metric", fmt.Sprintf("must be %q or %q", MetricBandwidth, MetricTransactions)))
	}
	return s.report(ctx, account, metric, func(step *AlertStep) error {
		step.State = nil
		return nil
	})
}

// report makes a step of an alert.
func (s *WebhookService) report(ctx context.Context, account string, metric Metric, change func(*AlertStep) error) error {
	if err := checkAccount(account); err != nil {
		return err
	}
	if s.dispatcher.reporter.observer.Published != nil {
		return s.reportObserved(ctx, account, metric, change)
	}
	_, err := s.update(ctx, account, metric, change)
	return err
}

// update makes a step of an alert.
func (s *WebhookService) update(ctx context.Context, account string, metric Metric, change func(*AlertStep) error) (deliveries int, err error) {
	deliveries, err = s.store.UpdateAlert(ctx, account, metric, s.traced(ctx, change))
	s.dispatcher.halt.noteWrite(ctx, "report", err)
	if err != nil {
		return 0, fmt.Errorf("report %s: %w", metric, err)
	}
	return deliveries, nil
}

// reportObserved is report with a call of the Observer for published events.
func (s *WebhookService) reportObserved(ctx context.Context, account string, metric Metric, change func(*AlertStep) error) error {
	begun := time.Now()
	var events []*EncodedEvent
	deliveries, err := s.update(ctx, account, metric, func(step *AlertStep) error {
		err := change(step)
		events = events[:0] // change may run more than once; the last run counts
		for i := range step.Events {
			events = append(events, &step.Events[i].EncodedEvent)
		}
		return err
	})
	s.dispatcher.reporter.published(ctx, begun, account, deliveries, err, events...)
	return err
}

// changePause is the minimum time between two events to a webhook because of changes.
const changePause = 5 * time.Second

// decideBalance applies a decision to a step. For a changed webhook the event ID is derived from
// webhook and time, and the store accepts each ID once: changing a threshold back and forth must
// not send unlimited events.
func (s *WebhookService) decideBalance(step *AlertStep, account string, changed bool, decision alerting.BalanceDecision) error {
	step.State, step.Deferrable = decision.State, decision.Deferrable
	for _, low := range decision.Low {
		now := s.now()
		eventID := s.ids.New(id.Event, now)
		if changed {
			of := sha256.Sum256([]byte("storageapi changed webhook\x00" + low.ID))
			eventID = id.Derived(id.Event, now.Truncate(changePause), of[:])
		}
		if err := s.fire(step, eventID, account, low.ID, now, BalanceLow{Amount(low.Balance), Amount(low.Threshold)}); err != nil {
			return err
		}
	}
	return nil
}

// balanceSubscribers returns the account's webhooks that subscribe to [TypeBalanceLow].
func (step *AlertStep) balanceSubscribers() (list []alerting.Subscriber) {
	for _, w := range step.Webhooks() {
		if slices.Contains(w.Events, TypeBalanceLow) {
			list = append(list, alerting.Subscriber{ID: w.ID, Threshold: uint64(w.BalanceThreshold)})
		}
	}
	return list
}

// fire adds an event to the step, for the given webhook or, if empty, all subscribed webhooks.
func (s *WebhookService) fire(step *AlertStep, eventID, account, webhook string, now time.Time, data Data) error {
	encoded, err := Event{ID: eventID, Account: account, Timestamp: now, Data: data}.encode(s.events)
	if err != nil {
		return err
	}
	step.Events = append(step.Events, AlertEvent{EncodedEvent: encoded, WebhookID: webhook})
	return nil
}

// balanceMayBeLow notifies a created or changed webhook if the balance is below its threshold. The
// store has already saved the webhook and marked the alert as due in one step, so after a failure
// here the next report or the maintainer notifies it.
func (s *WebhookService) balanceMayBeLow(ctx context.Context, webhook Webhook) {
	if !slices.Contains(webhook.Events, TypeBalanceLow) {
		return
	}
	if err := s.reevaluateBalance(ctx, webhook.Account); err != nil {
		s.logger.Warn("storageapi: a webhook was not told yet whether the balance is low", "webhook", webhook.ID, "error", err)
	}
}

func (s *WebhookService) reevaluateBalance(ctx context.Context, account string) error {
	return s.report(ctx, account, MetricBalance, func(step *AlertStep) error {
		return s.decideBalance(step, account, true, s.alerts.RepeatBalance(step.State, step.Due, step.balanceSubscribers))
	})
}

// reevaluateStep is the number of alerts re-evaluated at a time.
const reevaluateStep = 100

// reevaluateDue re-evaluates alerts that are still due.
func (s *WebhookService) reevaluateDue(ctx context.Context) (more bool, err error) {
	accounts, err := s.store.DueAlerts(ctx, reevaluateStep)
	if err != nil {
		return false, err
	}
	for _, account := range accounts {
		if err := s.reevaluateBalance(ctx, account); err != nil {
			return false, err
		}
	}
	return len(accounts) == reevaluateStep, nil
}
