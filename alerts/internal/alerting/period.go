package alerting

import (
	"fmt"
	"time"
)

// MaxPeriodAhead is how long before its start a month or day may be reported. Some hosts report the
// coming period, and some name a month by its end.
const MaxPeriodAhead = 45 * 24 * time.Hour

// checkPeriod validates a new period against the previous one, which may be empty. It returns "" or
// a message. Without this check, a single period that sorts after all future ones would silently
// suppress all later alerts of the account.
func checkPeriod(period, previous string, now time.Time) (refused string) {
	switch {
	case isFarAhead(period, now):
		return fmt.Sprintf("must not begin more than %d days from now", MaxPeriodAhead/(24*time.Hour))
	case previous != "" && !isFarAhead(previous, now) && !sameForm(period, previous):
		return fmt.Sprintf("must have the format of the previous period, %q: the same length, with digits in the same places; "+
			"call ForgetPeriod first to change the format", previous)
	}
	return ""
}

// isFarAhead reports whether the period is a month or a day more than MaxPeriodAhead in the future.
func isFarAhead(period string, now time.Time) bool {
	for _, layout := range []string{"2006-01", time.DateOnly} {
		if begin, err := time.Parse(layout, period); err == nil {
			return begin.Sub(now) > MaxPeriodAhead
		}
	}
	return false
}

// sameForm reports whether two periods have the same length, and digits in the same places. Such
// periods sort in the order of time.
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
