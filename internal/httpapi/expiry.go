package httpapi

import (
	"regexp"
	"time"
)

// dateTime is the form of an RFC 3339 date-time. The time package takes more than
// that: hours of one digit, a comma before the fraction, offsets of 24 hours.
var dateTime = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// parseTime parses an RFC 3339 date-time, whose offset is required, or a date, which
// means midnight UTC.
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

// parseExpiry parses when a key is to die.
func parseExpiry(s string) (time.Time, error) {
	at, err := parseTime("expiresAt", s)
	if err == nil && at.Before(time.Unix(0, 0)) { // including the zero time, which means none to the service
		err = invalid("expiresAt", "must be in the future")
	}
	return at, err
}

// parseBound parses where a range of time begins or ends.
func parseBound(field string) func(string) (time.Time, error) {
	return func(s string) (time.Time, error) {
		at, err := parseTime(field, s)
		if err == nil && at.Before(time.Unix(0, 0)) { // including the zero time, which means none to the service
			err = invalid(field, "must not be before 1970")
		}
		return at, err
	}
}
