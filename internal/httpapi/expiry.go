package httpapi

import (
	"regexp"
	"time"
)

// dateTime matches an RFC 3339 date-time. The time package also accepts one-digit hours, a comma
// before the fraction, and offsets of 24 hours, all of which this API rejects.
var dateTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// parseTime parses an RFC 3339 date-time with an offset, or a date. A date means midnight UTC.
func parseTime(field, s string) (time.Time, error) {
	layout := time.DateOnly
	if dateTime.MatchString(s) {
		layout = time.RFC3339
	}
	at, err := time.Parse(layout, s)
	if err != nil {
		return time.Time{}, invalid(field,
			`must be an RFC 3339 date-time with an offset, such as "2030-01-31T12:00:00Z", or a date, such as "2030-01-31"`)
	}
	return at, nil
}

// parseExpiry parses the expiry of a key.
func parseExpiry(s string) (time.Time, error) {
	at, err := parseTime("expiresAt", s)
	if err == nil && at.Before(time.Unix(0, 0)) { // also rejects the zero time, which the service treats as absent
		err = invalid("expiresAt", "must be in the future")
	}
	return at, err
}

// parseBound returns a function that parses a bound of a time range.
func parseBound(field string) func(string) (time.Time, error) {
	return func(s string) (time.Time, error) {
		at, err := parseTime(field, s)
		if err == nil && at.Before(time.Unix(0, 0)) { // also rejects the zero time, which the service treats as absent
			err = invalid(field, "must not be before 1970")
		}
		return at, err
	}
}
