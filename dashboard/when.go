package dashboard

import (
	"fmt"
	"time"
)

// A when is the template data for a point in time.
type when struct {
	ISO    string // for machines
	Full   string // "21 Nov 2026, 16:04:05 UTC"
	Minute string // "21 Nov 2026, 16:04 UTC"
	Day    string // "21 Nov 2026"
	Near   string // "3 minutes ago", "in 2 days"
}

// when returns the template data for at, or nil for the zero time.
func (p *pages) when(at time.Time) *when {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &when{
		ISO:    at.Format(time.RFC3339),
		Full:   at.Format("2 Jan 2006, 15:04:05 UTC"),
		Minute: at.Format("2 Jan 2006, 15:04 UTC"),
		Day:    at.Format("2 Jan 2006"),
		Near:   near(at.Sub(p.now())),
	}
}

// near describes a duration as a relative time, rounded.
func near(d time.Duration) string {
	const day = 24 * time.Hour
	format, moment := "in %s", "in a moment"
	if d <= 0 {
		format, moment, d = "%s ago", "just now", -d
	}
	switch {
	case d < 10*time.Second:
		return moment
	case d < time.Minute:
		return fmt.Sprintf(format, count(int(d/time.Second), "second"))
	case d < time.Hour:
		return fmt.Sprintf(format, count(int(d/time.Minute), "minute"))
	case d < day:
		return fmt.Sprintf(format, count(int(d/time.Hour), "hour"))
	case d < 60*day:
		return fmt.Sprintf(format, count(int(d/day), "day"))
	case d < 730*day:
		return fmt.Sprintf(format, count(int(d/(30*day)), "month"))
	}
	return fmt.Sprintf(format, count(int(d/(365*day)), "year"))
}

// count returns a number with its noun, in the singular or plural.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// took formats a duration with about three digits, or in two units.
func took(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}
