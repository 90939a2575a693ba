package httpapi

import (
	"time"
)

// Grace periods, during which a replaced key value or webhook secret stays valid after a rotation.
const (
	defaultGrace = 24 * time.Hour
	maxGrace     = 365 * 24 * time.Hour
)

// parseGrace parses graceSeconds.
func parseGrace(seconds int64) (time.Duration, error) {
	if seconds < 0 || seconds > int64(maxGrace/time.Second) {
		return 0, invalid("graceSeconds", "must be a whole number from 0 to 31536000")
	}
	return time.Duration(seconds) * time.Second, nil
}
