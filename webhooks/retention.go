package webhooks

import (
	"fmt"
	"math"
	"time"

	"github.com/storageapi/storageapi/internal/input"
)

// Retention sets how long the records of an event are kept after its publication. Negative means
// forever. [WebhookService.Run] removes older records in small steps. Ages use the store's clock.
// With a store in this process, a forward jump of the system clock counts only once it has lasted
// a day, see [driver.History.Purge].
type Retention struct {
	// Payloads is how long the bodies of events are kept. After this time no attempt is made: a
	// pending delivery ends as dead, see [ClassExpired]. The body is removed 15 minutes later, or
	// twice [Outbound.Timeout] later if that is longer, so that no attempt can still be running.
	// Payloads must be longer than the sum of [RetryPolicy.Delays]. Default: 30 days.
	Payloads time.Duration

	// Attempts is how long deliveries and their attempts can be listed, and how long finished
	// recoveries are kept. It must be at least Payloads. Default: 90 days, or Payloads if that is
	// longer.
	Attempts time.Duration

	// EventIDs is how long event IDs are kept. They are used to look up events and to detect repeated
	// publications. It must be at least Payloads. Default: 90 days, or Payloads if that is longer.
	EventIDs time.Duration

	// Audit is how long audit entries about keys and webhooks are kept after they were stored. Run
	// also removes entries that the host has not received yet. It must be at least 14 days, so that a
	// key's expiry is not announced twice. Raise it if a regulation requires a longer audit log.
	// Default: 365 days.
	Audit time.Duration
}

const day = 24 * time.Hour

func (r Retention) withDefaults(retries []time.Duration, jitter float64) (Retention, error) {
	setDefault(&r.Payloads, 30*day)
	setDefault(&r.Audit, 365*day)
	least := r.Payloads
	if least >= 0 {
		least = max(least, 90*day)
	}
	setDefault(&r.Attempts, least)
	setDefault(&r.EventIDs, least)
	all := longest(retries, jitter)
	switch payloads := lifetime(r.Payloads); {
	case payloads <= all:
		return r, input.Invalid("Retention.Payloads", fmt.Sprintf("must be longer than all Retry.Delays together, which are up to %v", all))
	case lifetime(r.Attempts) < payloads:
		return r, input.Invalid("Retention.Attempts", fmt.Sprintf("must be at least Retention.Payloads, which is %v", r.Payloads))
	case lifetime(r.EventIDs) < payloads:
		return r, input.Invalid("Retention.EventIDs", fmt.Sprintf("must be at least Retention.Payloads, which is %v", r.Payloads))
	case lifetime(r.Audit) < 14*day: // a shorter time would repeat the notices of apikeys.ExpiryLeads
		return r, input.Invalid("Retention.Audit", "must be at least 14 days (336h)")
	}
	return r, nil
}

// expires reports whether events of this age get no more attempts.
func (r *Retention) expires(age time.Duration) bool { return r.Payloads >= 0 && age > r.Payloads }

// margin returns how long bodies are kept after the last attempts may begin. It is longer than an
// attempt takes, from loading the delivery to recording the result, because a store ends pending
// deliveries without knowing about running attempts. Only tests set Payloads shorter than the
// margin.
func (r *Retention) margin(timeout time.Duration) time.Duration {
	return min(max(15*time.Minute, 2*timeout), r.Payloads)
}

// lifetime maps a negative duration, which means forever, to the maximum.
func lifetime(d time.Duration) time.Duration {
	if d < 0 {
		return math.MaxInt64
	}
	return d
}

// longest returns the maximum total wait of the retries, without Retry-After.
func longest(retries []time.Duration, jitter float64) time.Duration {
	total := 0.0
	for _, wait := range retries {
		total += float64(wait) * (1 + max(jitter, 0))
	}
	return time.Duration(min(total, math.MaxInt64/2))
}
