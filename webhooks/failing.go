package webhooks

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/storageapi/storageapi/internal/clock"
)

// A warden turns off webhooks that fail for too long, and has the host warned before. It
// goes by the clock, not by attempts: where little is sent, few of them are made. And as
// it does, a clock that is set ahead must not turn off what fails since yesterday: that
// much does not count before it has held for a day.
type warden struct {
	store  Store
	clock  clock.Clock
	config *Config
	tell   func([]hookCall)
	after  string // the webhook that was looked at last
}

const (
	wardenStep = 64             // webhooks
	maxNotice  = 12 * time.Hour // from warning the host to turning off, at least
)

// notice returns how long a webhook stays on after the host was warned of it, at least.
func (w *warden) notice() time.Duration { return min(maxNotice, w.config.FailingLimit/2) }

// turnsOffAt returns when a webhook that is failing will be turned off, or zero.
func (w *warden) turnsOffAt(webhook *Webhook) time.Time {
	if !webhook.Active || !webhook.FailedAgain || w.config.FailingLimit < 0 {
		return time.Time{}
	}
	at, warned := webhook.FailingSince.Add(w.config.FailingLimit), webhook.WarnedAt
	if warned.IsZero() { // the host is warned at half the time, or else now
		warned = w.config.Now()
	}
	if told := warned.Add(w.notice()); told.After(at) {
		return told
	}
	return at
}

// look judges some of the webhooks that have failed for long.
func (w *warden) look(ctx context.Context) (more bool, err error) {
	if w.config.FailingLimit < 0 {
		return false, nil
	}
	now := w.config.Now().UTC().Truncate(time.Millisecond)
	sure := now.Add(-w.doubt())
	list, err := w.store.FailingWebhooks(ctx, sure.Add(-w.config.FailingLimit/2-time.Millisecond), Page{After: w.after, Limit: wardenStep})
	w.after = ""
	if err != nil {
		return false, err
	}
	for i := range list {
		if err := w.judge(ctx, &list[i], now, sure); err != nil {
			return false, err
		}
	}
	if more = len(list) == wardenStep; more {
		w.after = list[len(list)-1].ID
	}
	return more, nil
}

// A Doubter is a [Store] that knows of a clock that may have been set while its process
// was not there.
type Doubter interface {
	// Doubt returns how much of the time that has passed by the system's clock is not
	// to be believed yet, and does not count for turning webhooks off: nothing failed
	// then.
	Doubt() time.Duration
}

// doubt returns how much of the time that has passed does not count yet.
func (w *warden) doubt() time.Duration {
	doubt := w.clock.Doubt()
	if doubter, ok := w.store.(Doubter); ok {
		doubt = max(doubt, doubter.Doubt())
	}
	return doubt
}

// errOther says that a webhook is not what was judged.
var errOther = errors.New("the webhook is not as it was when it was judged")

// judge warns the host of a webhook, or turns it off, if it is time and the webhook is
// still what was judged: an attempt that has succeeded meanwhile keeps it on.
func (w *warden) judge(ctx context.Context, judged *Webhook, now, sure time.Time) error {
	warns := judged.WarnedAt.IsZero()
	if !warns && (sure.Sub(judged.FailingSince) <= w.config.FailingLimit || sure.Sub(judged.WarnedAt) < w.notice()) {
		return nil
	}
	changed, err := w.store.UpdateWebhook(ctx, judged.Account, judged.ID, func(current *Webhook) error {
		switch {
		case !current.Active || !current.FailedAgain || current.URL != judged.URL,
			!current.FailingSince.Equal(judged.FailingSince), !current.WarnedAt.Equal(judged.WarnedAt):
			return errOther
		case warns:
			current.WarnedAt = now
		default:
			current.Active, current.OffReason = false, OffFailing
		}
		return nil
	})
	switch {
	case errors.Is(err, errOther), errors.Is(err, ErrNotFound):
		return nil
	case err != nil && !w.happened(ctx, judged, warns, now, &changed):
		return err
	}
	w.report(&changed, warns)
	return nil
}

// happened reports whether a change was made although the store failed, and reads what
// came of it.
func (w *warden) happened(ctx context.Context, judged *Webhook, warns bool, now time.Time, changed *Webhook) bool {
	var err error
	if *changed, err = w.store.WebhookByID(ctx, judged.Account, judged.ID); err != nil {
		return false
	}
	return warns && changed.WarnedAt.Equal(now) || !warns && changed.OffReason == OffFailing
}

// report logs what has become of a webhook, and tells the host.
func (w *warden) report(webhook *Webhook, warned bool) {
	message := "storageapi: webhook turned off: its attempts have all failed for too long"
	if warned {
		message = "storageapi: webhook will be turned off if its attempts go on failing"
	}
	logFailing(w.config.Logger, message, webhook)
	switch hooks, told := &w.config.Hooks, webhook.clone(); {
	case warned && hooks.Failing != nil:
		w.tell([]hookCall{{"Failing", func() { hooks.Failing(told, told.FailingSince) }}})
	case !warned && hooks.Off != nil:
		w.tell([]hookCall{{"Off", func() { hooks.Off(told, OffFailing) }}})
	}
}

func logFailing(logger *slog.Logger, message string, w *Webhook) {
	logger.LogAttrs(context.Background(), slog.LevelWarn, message,
		slog.String("account", w.Account),
		slog.String("webhook", w.ID),
		slog.String("receiver", origin(w.URL)),
		slog.Time("failing_since", w.FailingSince),
	)
}
