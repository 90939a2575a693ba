package webhooks

import (
	"context"
	"fmt"
	"time"
)

// maxPeriodAhead is how long before its beginning a month or day may be reported: some
// hosts name what is to come, and some name a month by its end.
const maxPeriodAhead = 45 * day

// checkPeriod checks a period that differs from the one that is kept of the reports
// before, which may be empty. A single one that sorts after all to come would end the
// account's alerts without a word.
func checkPeriod(period, kept string, now time.Time) error {
	switch {
	case isFarAhead(period, now):
		return invalid("period", fmt.Sprintf("must not begin more than %d days from now", maxPeriodAhead/day))
	case kept != "" && !isFarAhead(kept, now) && !sameForm(period, kept):
		return invalid("period", fmt.Sprintf("must be of the form of %q, which was reported before: as long, with digits in the same places. "+
			"Where the form is to change, call ForgetPeriod before", kept))
	}
	return nil
}

// isFarAhead reports whether the period reads as a month or a day that is far ahead.
func isFarAhead(period string, now time.Time) bool {
	for _, layout := range []string{"2006-01", time.DateOnly} {
		if begin, err := time.Parse(layout, period); err == nil {
			return begin.Sub(now) > maxPeriodAhead
		}
	}
	return false
}

// sameForm reports whether two periods are as long and have digits in the same places, so
// that what counts up sorts as it counts.
func sameForm(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if isDigit(a[i]) != isDigit(b[i]) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// ForgetPeriod forgets what was reported of an account's [MetricBandwidth] or
// [MetricTransactions], for a host that changes how it names periods: the next report may
// name any, and tells of all that the account has come to by then, also if it was told of
// before.
//
// It returns a [*ValidationError] for another metric, and nil if nothing was reported.
// After any other error it may have happened or not: call it again.
func (s *WebhookService) ForgetPeriod(ctx context.Context, account string, metric Metric) error {
	if err := checkAccount(account); err != nil {
		return err
	}
	if metric != MetricBandwidth && metric != MetricTransactions {
		return invalid("metric", fmt.Sprintf("must be %q or %q", MetricBandwidth, MetricTransactions))
	}
	return s.report(ctx, account, metric, func(step *AlertStep) error {
		step.State = nil
		return nil
	})
}
