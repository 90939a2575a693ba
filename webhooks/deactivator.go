package webhooks

import (
	"context"
	"errors"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/clock"
	"github.com/storageapi/storageapi/store/driver"
)

// A deactivator disables webhooks that fail for too long, and warns the host before. It decides by
// elapsed time, not by the number of attempts, which may be small. A forward jump of the clock
// counts only after a day. Otherwise a clock that is set ahead could disable a webhook that has
// failed for only a day.
type deactivator struct {
	store    driver.WebhookStore
	clock    clock.Clock
	config   *Config
	reporter *reporter
	entries  *entryMaker
	after    string // ID of the last checked webhook
}

const (
	deactivateStep = 64             // webhooks
	maxNotice      = 12 * time.Hour // from the warning to disabling, unless half of DisableAfter is less
)

// notice returns the minimum time from the warning to disabling a webhook.
func (d *deactivator) notice() time.Duration { return min(maxNotice, d.config.Retry.DisableAfter/2) }

// turnsOffAt returns when a failing webhook will be disabled, or the zero time if it will not be.
func (d *deactivator) turnsOffAt(webhook *Webhook) time.Time {
	if !webhook.Claimable() || !webhook.FailedAgain || d.config.Retry.DisableAfter < 0 {
		return time.Time{}
	}
	at, warned := webhook.FailingSince.Add(d.config.Retry.DisableAfter), webhook.WarnedAt
	if warned.IsZero() { // the host is warned at half the time, or now if that is past
		warned = d.config.Now()
	}
	if earliest := warned.Add(d.notice()); earliest.After(at) {
		return earliest
	}
	return at
}

// check evaluates some of the webhooks that have failed for a long time.
func (d *deactivator) check(ctx context.Context) (more bool, err error) {
	if d.config.Retry.DisableAfter < 0 {
		return false, nil
	}
	now := d.config.Now().UTC().Truncate(time.Millisecond)
	sure := now.Add(-d.doubt())
	list, err := d.store.FailingWebhooks(ctx, sure.Add(-d.config.Retry.DisableAfter/2-time.Millisecond), driver.ListQuery{After: d.after, Limit: deactivateStep})
	d.after = ""
	if err != nil {
		return false, err
	}
	for i := range list {
		if err := d.evaluate(ctx, &list[i], now, sure); err != nil {
			return false, err
		}
	}
	if more = len(list) == deactivateStep; more {
		d.after = list[len(list)-1].ID
	}
	return more, nil
}

// doubt returns how much of the elapsed time a clock jump may have added.
func (d *deactivator) doubt() time.Duration {
	doubt := d.clock.Doubt()
	if doubts := d.store.Capabilities().Doubt; doubts != nil {
		doubt = max(doubt, doubts())
	}
	return doubt
}

// errOther reports that a webhook has changed since it was read.
var errOther = errors.New("the webhook has changed since it was read")

// evaluate warns the host about a webhook, or disables the webhook, if it is time. It does neither
// if the webhook has changed since it was read, for example because an attempt succeeded.
func (d *deactivator) evaluate(ctx context.Context, read *Webhook, now, sure time.Time) error {
	warns := read.WarnedAt.IsZero()
	if !warns && (sure.Sub(read.FailingSince) <= d.config.Retry.DisableAfter || sure.Sub(read.WarnedAt) < d.notice()) {
		return nil
	}
	var stored audit.Entry
	changed, err := d.store.UpdateWebhook(ctx, read.Account, read.ID, func(current *Webhook, entry *audit.Entry) error {
		switch {
		case !current.Claimable() || !current.FailedAgain || current.URL != read.URL,
			!current.FailingSince.Equal(read.FailingSince), !current.WarnedAt.Equal(read.WarnedAt):
			return errOther
		case warns:
			current.WarnedAt = now
			*entry = d.entries.byService(current, audit.WebhookFailing)
			entry.Until = d.turnsOffAt(current)
		default:
			*entry = d.entries.byService(current, audit.WebhookOff)
			entry.Reason = string(OffFailing)
			current.Active, current.OffReason, current.OffAt = false, OffFailing, now
		}
		stored = *entry
		return nil
	})
	switch {
	case errors.Is(err, errOther), errors.Is(err, apierr.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	message := "storageapi: webhook disabled: all its attempts have failed for too long"
	if warns {
		message = "storageapi: webhook will be disabled if its attempts keep failing"
	}
	d.reporter.logWebhook(message, &changed)
	d.reporter.Changed(&stored)
	return nil
}
