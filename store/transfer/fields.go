package transfer

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
)

// A fielded is a record as a [fields.Record].
type fielded struct{ Record }

func (r fielded) Fields(w *fields.Walk) { r.visit(w) }

// A visitor visits the fields of a record for checks and checksums. These use neither the tags nor
// the uses of fields.
type visitor struct{ *fields.Walk }

func (v visitor) text(name, text string)         { fields.Text(v.Walk, name, fields.Placed, 0, &text) }
func (v visitor) time(name string, at time.Time) { fields.Time(v.Walk, name, fields.Placed, 0, &at) }
func (v visitor) flag(name string, is bool)      { fields.Bool(v.Walk, name, fields.Placed, 0, &is) }
func (v visitor) number(name string, n int64) {
	unsigned := uint64(n)
	fields.Number(v.Walk, name, fields.Placed, 0, &unsigned)
}

// bytes visits bytes of any length as their hash.
func (v visitor) bytes(name string, b []byte) {
	sum := sha256.Sum256(b)
	v.text(name, hex.EncodeToString(sum[:]))
}

func (r *Key) visit(w *fields.Walk) {
	(*listed.Key)(&r.Key).Fields(w)
	visitor{w}.time("usedAt", r.UsedAt)
}

func (r *Webhook) visit(w *fields.Walk) { (*listed.Webhook)(&r.Webhook).Fields(w) }

func (r *Request) visit(w *fields.Walk) {
	v := visitor{w}
	v.text("account", r.Account)
	v.flag("webhook", r.Webhook)
	v.text("idempotencyKey", r.IdempotencyKey)
	v.time("at", r.At)
	v.text("id", r.Made.ID)
	v.bytes("fingerprint", r.Made.Fingerprint[:])
	v.text("keyId", r.KeyID)
}

func (r *Alert) visit(w *fields.Walk) {
	v := visitor{w}
	v.text("account", r.Account)
	v.text("series", r.Series)
	v.bytes("state", r.State)
	v.flag("due", r.Due)
}

func (r *DedupKey) visit(w *fields.Walk) {
	v := visitor{w}
	v.text("account", r.Account)
	v.text("key", r.Key)
	v.time("until", r.Until)
}

func (r *Scan) visit(w *fields.Walk) { visitor{w}.bytes("state", r.State) }

// visit omits NextEventID, since a store may return an earlier event.
func (r *Recovery) visit(w *fields.Walk) {
	v := visitor{w}
	v.text("account", r.Account)
	v.text("id", r.ID)
	v.text("webhookId", r.WebhookID)
	fields.Texts(w, "states", fields.Placed, 0, &r.States)
	v.time("from", r.From)
	v.time("to", r.To)
	v.time("createdAt", r.CreatedAt)
	v.number("recovered", int64(r.Recovered))
	v.flag("done", r.Done)
}

func (r *AuditEntry) visit(w *fields.Walk) {
	(*listed.AuditEntry)(&r.Entry).Fields(w)
	visitor{w}.time("storedAt", r.StoredAt)
}

func (r *Event) visit(w *fields.Walk) {
	v := visitor{w}
	v.text("account", r.Account)
	v.text("id", r.ID)
	v.text("type", string(r.Type))
	v.time("timestamp", r.Timestamp)
	v.bytes("body", r.Body)
	v.text("traceContext", r.TraceContext)
	v.text("resource", r.Resource)
	v.time("publishedAt", r.PublishedAt)
	v.number("matched", int64(r.Matched))
	v.flag("noBody", r.NoBody)
	v.flag("forgotten", r.Forgotten)
	v.number("deliveries", int64(len(r.Deliveries)))
	for i := range r.Deliveries {
		r.Deliveries[i].visit(v)
	}
}

// visit omits when a delivery is due and whether it is due before others, since that depends on the
// store and the time.
func (d *Delivery) visit(v visitor) {
	v.text("deliveries.webhookId", d.WebhookID)
	v.text("deliveries.state", string(d.State))
	v.text("deliveries.settled", string(d.Settled))
	v.number("deliveries.made", int64(d.Made))
	v.number("deliveries.before", int64(d.Before))
	v.flag("deliveries.recovered", d.Recovered)
	v.number("deliveries.attempts", int64(len(d.Attempts)))
	for i := range d.Attempts {
		a := &d.Attempts[i]
		v.number("deliveries.attempts.number", int64(a.Number))
		v.time("deliveries.attempts.startedAt", a.StartedAt)
		v.number("deliveries.attempts.duration", a.Duration.Microseconds())
		v.number("deliveries.attempts.status", int64(a.Status))
		v.text("deliveries.attempts.class", string(a.Class))
		v.text("deliveries.attempts.error", a.Error)
		v.text("deliveries.attempts.response", a.Response)
	}
}
