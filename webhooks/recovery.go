package webhooks

import "time"

// A Recovery is a job that makes deliveries of one webhook pending again, oldest
// first. It survives a restart.
type Recovery struct {
	ID        string // "rec_" and a ULID
	Account   string
	WebhookID string

	// States are those of the deliveries to recover: one or more of Dead,
	// Skipped and Delivered.
	States []DeliveryState

	From time.Time // published then or later
	To   time.Time // published before; what is created with the zero time gets that of just after the last event there is

	CreatedAt time.Time // UTC, to the millisecond
	Recovered int       // deliveries made pending so far
	Done      bool      // nothing is left to do
}
