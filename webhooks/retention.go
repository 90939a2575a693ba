package webhooks

import (
	"fmt"
	"math"
	"time"
)

// Retention is how long what events leave behind is kept, from when they were
// published; negative: for ever. [WebhookService.Run] removes what is older, in
// small steps. It goes by the store's clock; on a store in this process a jump ahead
// of the system's clock counts once it has held for a day, see [History.Purge].
type Retention struct {
	// Payloads are the bodies of events. No attempt is made for older events: a pending delivery
	// ends as dead, see [ClassExpired]. The bodies are removed 15 minutes later, or twice
	// [Outbound.Timeout] if that is longer, when no attempt that had begun before is under way.
	// Longer than all of [RetryPolicy.Delays] together. Default: 30 days.
	Payloads time.Duration

	// Attempts are the deliveries and attempts that can be listed, and
	// recoveries that are done. At least as long as Payloads. Default: 90 days,
	// or as long as Payloads if that is longer.
	Attempts time.Duration

	// EventIDs are how an event that is published again is known, and found by
	// its id. At least as long as Payloads. Default: 90 days, or as long as
	// Payloads if that is longer.
	EventIDs time.Duration

	// Audit are the audit entries of what happened to keys and webhooks, from when they were
	// stored: the audit log, and what the host was not told yet, which is lost then.
	// At least 14 days, so that a key's expiry that was told of is known to have been.
	// Raise it where a rule asks for a longer trail. Default: 365 days.
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
		return r, invalid("Retention.Payloads", fmt.Sprintf("must be longer than all Retry.Delays together, which are up to %v", all))
	case lifetime(r.Attempts) < payloads:
		return r, invalid("Retention.Attempts", fmt.Sprintf("must be at least Retention.Payloads, which is %v", r.Payloads))
	case lifetime(r.EventIDs) < payloads:
		return r, invalid("Retention.EventIDs", fmt.Sprintf("must be at least Retention.Payloads, which is %v", r.Payloads))
	case lifetime(r.Audit) < 14*day: // apikeys.ExpiryLeads: it would be told again after each purge
		return r, invalid("Retention.Audit", "must be at least 14 days (336h)")
	}
	return r, nil
}

// expires reports whether no attempt is made for an event of that age.
func (r *Retention) expires(age time.Duration) bool { return r.Payloads >= 0 && age > r.Payloads }

// margin returns how much longer bodies are kept than attempts are made: longer than an attempt
// takes, from when it is loaded until it is recorded. A store ends what is pending without
// knowing what is under way. Payloads that are shorter than the margin are those of tests.
func (r *Retention) margin(timeout time.Duration) time.Duration {
	return min(max(15*time.Minute, 2*timeout), r.Payloads)
}

// lifetime makes for ever a number.
func lifetime(d time.Duration) time.Duration {
	if d < 0 {
		return math.MaxInt64
	}
	return d
}

// longest returns how long the retries can take, but for what receivers ask for.
func longest(retries []time.Duration, jitter float64) time.Duration {
	total := 0.0
	for _, wait := range retries {
		total += float64(wait) * (1 + max(jitter, 0))
	}
	return time.Duration(min(total, math.MaxInt64/2))
}
