package alerting

import (
	"fmt"
	"time"
)

// MaxPeriodAhead is how long before its beginning a month or day may be reported: some
// hosts name what is to come, and some name a month by its end.
const MaxPeriodAhead = 45 * 24 * time.Hour

// checkPeriod returns what is wrong with a period that differs from that of the reports
// before, which may be empty. A single one that sorts after all to come would silence the account's alerts
// unnoticed.
func checkPeriod(period, before string, now time.Time) (refused string) {
	switch {
	case isFarAhead(period, now):
		return fmt.Sprintf("must not begin more than %d days from now", MaxPeriodAhead/(24*time.Hour))
	case before != "" && !isFarAhead(before, now) && !sameForm(period, before):
		return fmt.Sprintf("must be of the form of %q, which was reported before: as long, with digits in the same places. "+
			"Where the form is to change, call ForgetPeriod before", before)
	}
	return ""
}

// isFarAhead reports whether the period reads as a month or a day that is far ahead.
func isFarAhead(period string, now time.Time) bool {
	for _, layout := range []string{"2006-01", time.DateOnly} {
		if begin, err := time.Parse(layout, period); err == nil {
			return begin.Sub(now) > MaxPeriodAhead
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
