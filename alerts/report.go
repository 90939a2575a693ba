package alerts

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/storageapi/storageapi/alerts/internal/alerting"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/observe"
	"github.com/storageapi/storageapi/store/driver"
	"github.com/storageapi/storageapi/webhooks"
)

// A Metric is the subject of an account's reports. It is also the name of the [driver.AlertSeries]
// that holds their state.
type Metric string

// The metrics.
const (
	MetricBalance      Metric = "balance"
	MetricBandwidth    Metric = "bandwidth"
	MetricTransactions Metric = "transactions"
)

// ReportBalance reports an account's balance, as often as the host likes: a report that changes
// nothing writes nothing. It notifies each webhook of the account that subscribes to balance.low,
// even an inactive one, once when the balance is below the webhook's threshold. The threshold is
// [webhooks.Webhook.Threshold], an [Amount], or else [Config.DefaultBalanceThreshold]. The webhook
// is notified again only after a report at or above the threshold plus [Config.BalanceHysteresis].
// A webhook that is created or changed later is notified immediately if the last reported balance
// is below its threshold, but at most once in five seconds.
//
// When ReportBalance returns nil, the resulting events are stored, as durably as by
// [webhooks.WebhookService.Publish]. When it returns an error that is not a
// [*apierr.ValidationError], they may or may not be stored. Report again to be sure: no
// notification is repeated. Concurrent reports have the same effect as reports made one after the
// other, in any order.
//
// A balance that causes no alert may be kept in memory only. After a crash, an earlier reported
// balance, which differs by at most 1/64, applies until the next report.
func (s *AlertService) ReportBalance(ctx context.Context, account string, balance Amount) error {
	return s.report(ctx, account, MetricBalance, func(step *driver.AlertStep) error {
		return s.decideBalance(ctx, step, account, step.Due, s.policy.ReportBalance(step.State, step.Due, uint64(balance), func() []alerting.Subscriber { return s.balanceSubscribers(step) }))
	})
}

// ReportBandwidth reports how many bytes of its limit an account has used in a period, as often
// as the host likes: a report that changes nothing writes nothing. It publishes
// bandwidth.limit_approaching when the use reaches each of [Config.ApproachingRatios], and
// bandwidth.limit_reached when it reaches the limit, each once per period. If one report causes
// several events, they are published in this order. A limit of 0 means unlimited. If the limit is
// higher than in the previous report, all events can be sent again in the same period.
//
// The period is the host's name for the time span of the limit, 1 to 64 bytes without control
// characters. A later period must sort after earlier ones, byte by byte, as "2026-11" does after
// "2026-10": a report for a period before the latest one changes nothing. A period that sorts too
// high would suppress the events of later periods. Therefore, until [AlertService.ForgetPeriod] is
// called, a period must have the same length as the previous one and digits in the same places. A
// month (2026-11) or a day (2026-11-30) must begin within 45 days from now. Otherwise
// ReportBandwidth returns a [*apierr.ValidationError] for period, and changes nothing.
//
// Other errors and concurrent reports have the same effect as in [AlertService.ReportBalance].
func (s *AlertService) ReportBandwidth(ctx context.Context, account string, usedBytes, limitBytes int64, period string) error {
	return s.reportUsage(ctx, account, MetricBandwidth, usedBytes, limitBytes, period, func(level uint32) webhooks.Data {
		if level == alerting.Reached {
			return BandwidthLimitReached{usedBytes, limitBytes, period}
		}
		return BandwidthLimitApproaching{usedBytes, limitBytes, period, alerting.Ratio(level)}
	})
}

// ReportTransactions reports how many transactions of its limit an account has made in a period. It
// publishes transactions.limit_approaching and transactions.limit_reached by the rules of
// [AlertService.ReportBandwidth].
func (s *AlertService) ReportTransactions(ctx context.Context, account string, used, limit int64, period string) error {
	return s.reportUsage(ctx, account, MetricTransactions, used, limit, period, func(level uint32) webhooks.Data {
		if level == alerting.Reached {
			return TransactionsLimitReached{used, limit, period}
		}
		return TransactionsLimitApproaching{used, limit, period, alerting.Ratio(level)}
	})
}

func (s *AlertService) reportUsage(ctx context.Context, account string, metric Metric, used, limit int64, period string, data func(level uint32) webhooks.Data) error {
	switch {
	case used < 0:
		return input.Invalid("used", "must not be negative")
	case limit < 0:
		return input.Invalid("limit", "must not be negative; 0 means no limit")
	case period == "" || len(period) > 64 || !input.PlainText(period):
		return input.Invalid("period", "must be 1 to 64 bytes of UTF-8 without control characters")
	}
	return s.report(ctx, account, metric, func(step *driver.AlertStep) error {
		decision, refused := s.policy.ReportUsage(step.State, alerting.Usage{Used: used, Limit: limit, Period: period}, s.now)
		if refused != "" {
			return input.Invalid("period", refused)
		}
		step.State = decision.State
		for _, level := range decision.Levels {
			if err := s.fire(ctx, step, "", webhooks.Event{Account: account, Data: data(level)}); err != nil {
				return err
			}
		}
		return nil
	})
}

// ForgetPeriod clears the reports of an account's [MetricBandwidth] or [MetricTransactions], for a
// host that changes its period names. The next report may use any name. It notifies about all
// levels that the use has reached by then, including levels that were notified before.
//
// It returns a [*apierr.ValidationError] for another metric, and nil if there were no reports.
// After any other error the reports may or may not be cleared: call it again.
func (s *AlertService) ForgetPeriod(ctx context.Context, account string, metric Metric) error {
	if metric != MetricBandwidth && metric != MetricTransactions {
		return cmp.Or(input.Account(account), input.Invalid("metric", fmt.Sprintf("must be %q or %q", MetricBandwidth, MetricTransactions)))
	}
	return s.report(ctx, account, metric, func(step *driver.AlertStep) error {
		step.State = nil
		return nil
	})
}

// report applies change to the alert state of a metric, in one transaction with the resulting
// events.
func (s *AlertService) report(ctx context.Context, account string, metric Metric, change func(*driver.AlertStep) error) error {
	if err := input.Account(account); err != nil {
		return err
	}
	begun := time.Now()
	var events []*webhooks.EncodedEvent
	deliveries, err := s.store.UpdateAlert(ctx, account, string(metric), func(step *driver.AlertStep) error {
		err := change(step)
		events = nil // change may run more than once; the last run counts
		for i := range step.Events {
			events = append(events, &step.Events[i].EncodedEvent)
		}
		return err
	})
	s.published(ctx, begun, account, deliveries, err, events...)
	if err != nil {
		return fmt.Errorf("report %s: %w", metric, err)
	}
	return nil
}

// published reports a call to the store that began at begun, as the WebhookService reports its own
// calls.
func (s *AlertService) published(ctx context.Context, begun time.Time, account string, deliveries int, err error, events ...*webhooks.EncodedEvent) {
	if err == nil && len(events) == 0 {
		return
	}
	p := observe.Publication{Account: account, Deliveries: deliveries, Duration: time.Since(begun), Err: err}
	for _, e := range events {
		p.Events = append(p.Events, observe.PublishedEvent{ID: e.ID, Type: string(e.Type), Bytes: len(e.Body)})
	}
	s.hooks.Published(ctx, p)
}

// changePause is the minimum time between two events that a webhook gets because it was changed.
const changePause = 5 * time.Second

// decideBalance adds a decision's state and events to step. For a changed webhook the event ID
// derives from webhook and time, and the store accepts each ID once. Otherwise changing a
// threshold back and forth could send unlimited events.
func (s *AlertService) decideBalance(ctx context.Context, step *driver.AlertStep, account string, changed bool, decision alerting.BalanceDecision) error {
	step.State, step.Deferrable = decision.State, decision.Deferrable
	for _, low := range decision.Low {
		event := webhooks.Event{Account: account, Data: BalanceLow{Amount(low.Balance), Amount(low.Threshold)}}
		if changed {
			of := sha256.Sum256([]byte("storageapi changed webhook\x00" + low.ID))
			event.ID = id.Derived(id.Event, s.now().Truncate(changePause), of[:])
		}
		if err := s.fire(ctx, step, low.ID, event); err != nil {
			return err
		}
	}
	return nil
}

// balanceSubscribers returns the account's webhooks that get events of [TypeBalanceLow], which have
// no resource.
func (s *AlertService) balanceSubscribers(step *driver.AlertStep) (list []alerting.Subscriber) {
	for _, w := range step.Webhooks() {
		if s.hooks.Subscribes(&w, TypeBalanceLow) && w.Resources.Allows("") {
			list = append(list, alerting.Subscriber{ID: w.ID, Threshold: w.Threshold})
		}
	}
	return list
}

// fire adds an event to the step, for the given webhook or, if empty, all subscribed webhooks. It
// omits hidden types.
func (s *AlertService) fire(ctx context.Context, step *driver.AlertStep, webhookID string, event webhooks.Event) error {
	if s.hides(event.Data.EventType()) {
		return nil
	}
	encoded, err := s.hooks.Encode(ctx, event)
	if err != nil {
		return err
	}
	step.Events = append(step.Events, driver.AlertEvent{EncodedEvent: encoded, WebhookID: webhookID})
	return nil
}

// webhookChanged notifies a created or changed webhook if the balance is below its threshold. The
// store has already saved the webhook and marked the series as due, in one transaction. So if
// webhookChanged fails, the next report or Run notifies the webhook.
func (s *AlertService) webhookChanged(ctx context.Context, webhook webhooks.Webhook) {
	if !s.hooks.Subscribes(&webhook, TypeBalanceLow) {
		return
	}
	if err := s.reevaluate(ctx, driver.AlertSeries{Account: webhook.Account, Name: string(MetricBalance)}); err != nil {
		s.logger.Warn("storageapi: balance notification of a webhook failed; retried with the next report", "webhook", webhook.ID, "error", err)
	}
}

// reevaluate evaluates a due series again, in one transaction. Only balances depend on webhooks;
// other series keep their state.
func (s *AlertService) reevaluate(ctx context.Context, due driver.AlertSeries) error {
	return s.report(ctx, due.Account, Metric(due.Name), func(step *driver.AlertStep) error {
		if due.Name != string(MetricBalance) {
			return nil
		}
		return s.decideBalance(ctx, step, due.Account, true, s.policy.RepeatBalance(step.State, step.Due, func() []alerting.Subscriber { return s.balanceSubscribers(step) }))
	})
}

// reevaluateStep is the number of series re-evaluated at a time.
const reevaluateStep = 100

// reevaluateDue evaluates up to reevaluateStep due series again.
func (s *AlertService) reevaluateDue(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	due, err := s.store.DueAlerts(ctx, reevaluateStep)
	if err != nil {
		return false, err
	}
	for _, series := range due {
		if err := s.reevaluate(ctx, series); err != nil {
			return false, err
		}
	}
	return len(due) == reevaluateStep, nil
}
