package transfer

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/store/driver"
)

// Check returns an error that wraps [ErrRecord] for the first record that no store can import.
// Every Import begins with it.
func Check(records []Record) error {
	for i, r := range records {
		if r == nil {
			return fmt.Errorf("record %d: %w: nil record", i, ErrRecord)
		}
		if err := first(r.check(), fields.Check(fielded{r}, checkText)); err != nil {
			return fmt.Errorf("record %d, of kind %s: %w", i, r.Kind(), err)
		}
	}
	return nil
}

func malformed(field, must string) error {
	return fmt.Errorf("%w: field %s: %s", ErrRecord, field, must)
}

// ids checks pairs of a field name and an ID or similar string.
func ids(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if id := pairs[i+1]; id == "" || len(id) > 128 || !isText(id) {
			return malformed(pairs[i], "must be 1 to 128 bytes of UTF-8 without NUL")
		}
	}
	return nil
}

func checkText(field, text string) error {
	if len(text) > 4096 || !isText(text) {
		return malformed(field, "must be at most 4096 bytes of UTF-8 without NUL")
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// count checks a number of attempts or deliveries.
func count(field string, n int) error {
	if n < 0 || n > 1<<20 {
		return malformed(field, "must be 0 to 1048576")
	}
	return nil
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Key) check() error {
	if r.Hash.IsZero() {
		return malformed("hash", "must be set")
	}
	return ids("account", r.Account, "id", r.ID)
}

func (r *Webhook) check() error {
	for _, h := range r.Headers {
		if h.Secret && (h.Value == "" || strings.ContainsFunc(h.Value, unicode.IsControl)) {
			return malformed("headerSecrets", "must have a value of one line for each secret header")
		}
	}
	for _, t := range r.Events {
		if t == driver.AllEvents && len(r.Events) > 1 || strings.HasPrefix(string(t), "*:") {
			return malformed("events", `must be only "*", or types of which none begins with "*:"`)
		}
	}
	for i, scheme := range r.Signatures {
		if i > 0 && scheme <= r.Signatures[i-1] {
			return malformed("signatures", "must be in ascending order, without duplicates")
		}
	}
	return ids("account", r.Account, "id", r.ID)
}

func (r *Request) check() error {
	return ids("account", r.Account, "idempotencyKey", r.IdempotencyKey, "id", r.Made.ID)
}

func (r *Alert) check() error {
	if len(r.State) == 0 || len(r.State) > 1<<20 {
		return malformed("state", "must be 1 byte to 1 MiB")
	}
	return ids("account", r.Account, "series", r.Series)
}

func (r *DedupKey) check() error {
	if r.Key == "" || len(r.Key) > 1024 || !isText(r.Key) {
		return malformed("key", "must be 1 to 1024 bytes of UTF-8 without NUL")
	}
	if r.Until.UnixMilli() < 0 {
		return malformed("until", "must be after 1970")
	}
	return ids("account", r.Account)
}

func (r *Scan) check() error {
	if len(r.State) == 0 || len(r.State) > 4096 {
		return malformed("state", "must be 1 to 4096 bytes")
	}
	return nil
}

func (r *Recovery) check() error {
	if r.NextEventID != "" {
		if err := ids("nextEventId", r.NextEventID); err != nil {
			return err
		}
	}
	if r.Recovered < 0 {
		return malformed("recovered", "must not be negative")
	}
	return ids("account", r.Account, "id", r.ID, "webhookId", r.WebhookID)
}

func (r *AuditEntry) check() error {
	if r.StoredAt.IsZero() {
		return malformed("storedAt", "must be set")
	}
	if r.Account != "" {
		if err := ids("account", r.Account); err != nil {
			return err
		}
	}
	return ids("id", r.ID)
}

func (r *Event) check() error {
	if err := first(ids("account", r.Account, "id", r.ID), count("matched", r.Matched)); err != nil {
		return err
	}
	switch {
	case r.PublishedAt.IsZero():
		return malformed("publishedAt", "must be set")
	case r.NoBody && len(r.Body) > 0:
		return malformed("body", "must be empty with noBody")
	case r.Forgotten && !r.NoBody:
		return malformed("forgotten", "requires noBody")
	}
	for i := range r.Deliveries {
		d := &r.Deliveries[i]
		if i > 0 && d.WebhookID <= r.Deliveries[i-1].WebhookID {
			return malformed("deliveries", "must be in ascending order of webhookId without duplicates")
		}
		if err := d.check(); err != nil {
			return err
		}
	}
	return nil
}

func (d *Delivery) check() error {
	if err := first(ids("deliveries.webhookId", d.WebhookID), count("deliveries.made", d.Made), count("deliveries.before", d.Before)); err != nil {
		return err
	}
	switch d.State {
	case driver.Pending:
		if d.Before > d.Made {
			return malformed("deliveries.before", "must be at most made")
		}
		if d.Settled != "" && d.Settled != driver.Delivered && d.Settled != driver.Dead {
			return malformed("deliveries.settled", "must be delivered, dead or empty")
		}
	case driver.Delivered, driver.Dead:
		if len(d.Attempts) == 0 {
			return malformed("deliveries.attempts", "must be set if the delivery is delivered or dead")
		}
	case driver.Skipped:
	default:
		return malformed("deliveries.state", "must be pending, delivered, dead or skipped")
	}
	if d.State != driver.Pending && (d.Settled != "" || d.Made != 0 || d.Before != 0 || d.Recovered || d.First || d.AsPublished || d.Wait != 0) {
		return malformed("deliveries.state", "must be pending if settled, made, before, recovered, first, asPublished or waitMillis is set")
	}
	for i := range d.Attempts {
		a := &d.Attempts[i]
		if a.Number < 1 || a.Number > 1<<20 || i > 0 && a.Number <= d.Attempts[i-1].Number {
			return malformed("deliveries.attempts.number", "must be in ascending order from 1 to 1048576")
		}
		if a.Status < 0 {
			return malformed("deliveries.attempts.status", "must not be negative")
		}
	}
	if len(d.Attempts) > driver.MaxAttempts {
		return malformed("deliveries.attempts", fmt.Sprintf("must be at most %d", driver.MaxAttempts))
	}
	return nil
}
