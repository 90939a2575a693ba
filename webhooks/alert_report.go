package webhooks

import (
	"context"
	"fmt"
	"slices"

	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/input"
)

// ReportBalance tells what an account's balance is, as often as the host likes: a
// report that changes nothing writes nothing. Each webhook of the account that
// subscribes to balance.low, also one that is off, is told once when the balance is
// below its [Webhook.BalanceThreshold], or else [Config.DefaultBalanceThreshold],
// and again only after a report at or above that, and [Config.BalanceHysteresis].
// A webhook that is created or changed later is told by the last report.
//
// When it returns nil, the alerts that follow are stored as events are by
// [WebhookService.Publish]. When it returns an error that is not a
// [*ValidationError], they may or may not be: report again to be sure, it tells
// nothing twice. Reports at the same moment have the effect of one after the other,
// whichever comes first.
//
// The balance itself may be kept in memory, if no alert follows from it. If the
// process is killed then, what is known of the balance is some report before, which
// differs by at most a 64th, until the next one.
func (s *WebhookService) ReportBalance(ctx context.Context, account string, balance Amount) error {
	return s.report(ctx, account, MetricBalance, func(step *AlertStep) error {
		return s.tellBalance(step, account, s.alerts.reportBalance(step, balance))
	})
}

// ReportBandwidth tells how many bytes of its limit an account has used in a period,
// as often as the host likes: a report that changes nothing writes nothing. It
// publishes bandwidth.limit_approaching once the use has come to a part of
// [Config.ApproachingRatios], and bandwidth.limit_reached once it has come to the
// limit, each once a period; several at once in this order. A limit of 0 is none. A
// limit that is higher than that of the report before makes all of them possible
// again in the same period.
//
// The period is the host's name for the time the limit is for, 1 to 64 bytes without
// control characters. A later period sorts after those before, byte by byte, as
// "2026-11" does after "2026-10": a report of an earlier one than was reported
// already changes nothing. So that none silences those to come, it must be as long as the
// one that was reported before and have its digits in the same places, until
// [WebhookService.ForgetPeriod] is called; and where it reads as a month (2026-11) or a
// day (2026-11-30), it must begin within 45 days from now. Otherwise the report is a
// [*ValidationError] of period, and changes nothing.
//
// Errors and reports at the same moment are as with [WebhookService.ReportBalance].
func (s *WebhookService) ReportBandwidth(ctx context.Context, account string, usedBytes, limitBytes int64, period string) error {
	return s.reportUsage(ctx, account, MetricBandwidth, usedBytes, limitBytes, period, func(level uint32) Data {
		if level == reached {
			return BandwidthLimitReached{usedBytes, limitBytes, period}
		}
		return BandwidthLimitApproaching{usedBytes, limitBytes, period, float64(level) / reached}
	})
}

// ReportTransactions tells how many transactions of its limit an account has made in
// a period. It publishes transactions.limit_approaching and
// transactions.limit_reached as [WebhookService.ReportBandwidth] does its events.
func (s *WebhookService) ReportTransactions(ctx context.Context, account string, used, limit int64, period string) error {
	return s.reportUsage(ctx, account, MetricTransactions, used, limit, period, func(level uint32) Data {
		if level == reached {
			return TransactionsLimitReached{used, limit, period}
		}
		return TransactionsLimitApproaching{used, limit, period, float64(level) / reached}
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
		levels, err := s.alerts.reportUsage(step, used, limit, period, s.now)
		if err != nil {
			return err
		}
		for _, level := range levels {
			if err := s.tellOf(step, account, "", data(level)); err != nil {
				return err
			}
		}
		return nil
	})
}

// report makes a step of an alert.
func (s *WebhookService) report(ctx context.Context, account string, metric Metric, change func(*AlertStep) error) error {
	if err := checkAccount(account); err != nil {
		return err
	}
	deliveries, err := s.store.UpdateAlert(ctx, account, metric, change)
	if deliveries > 0 || err != nil {
		s.dispatcher.wake()
	}
	if err != nil {
		return fmt.Errorf("report %s: %w", metric, err)
	}
	return nil
}

// tellOf adds an event to the step, for that webhook or all that are subscribed.
func (s *WebhookService) tellOf(step *AlertStep, account, webhook string, data Data) error {
	now := s.now()
	encoded, err := Event{ID: s.ids.New(id.Event, now), Account: account, Timestamp: now, Data: data}.encode()
	if err != nil {
		return err
	}
	step.Events = append(step.Events, AlertEvent{EncodedEvent: encoded, WebhookID: webhook})
	return nil
}

func (s *WebhookService) tellBalance(step *AlertStep, account string, tell []lowBalance) error {
	for _, low := range tell {
		if err := s.tellOf(step, account, low.webhook, low.data); err != nil {
			return err
		}
	}
	return nil
}

// balanceMayBeLow tells a webhook that was created or changed of the balance, if
// that is low by what it says now. It comes after the store has the webhook and has
// made the alert due in the same step: what fails here, or dies before, is made up
// for by the next report or the maintainer.
func (s *WebhookService) balanceMayBeLow(ctx context.Context, webhook Webhook) {
	if !slices.Contains(webhook.Events, TypeBalanceLow) {
		return
	}
	if err := s.reviewBalance(ctx, webhook.Account); err != nil {
		s.logger.Warn("storageapi: a webhook was not told yet whether the balance is low", "webhook", webhook.ID, "error", err)
	}
}

func (s *WebhookService) reviewBalance(ctx context.Context, account string) error {
	return s.report(ctx, account, MetricBalance, func(step *AlertStep) error {
		return s.tellBalance(step, account, s.alerts.reviewBalance(step))
	})
}

// reviewStep is how many alerts are reviewed at a time.
const reviewStep = 100

// reviewDue reviews alerts that were left due.
func (s *WebhookService) reviewDue(ctx context.Context) (more bool, err error) {
	accounts, err := s.store.DueAlerts(ctx, reviewStep)
	if err != nil {
		return false, err
	}
	for _, account := range accounts {
		if err := s.reviewBalance(ctx, account); err != nil {
			return false, err
		}
	}
	return len(accounts) == reviewStep, nil
}
