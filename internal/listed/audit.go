package listed

import (
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
)

// An AuditEntry is an [audit.Entry] with a list of its fields.
type AuditEntry audit.Entry

// Fields implements [fields.Record]. Stores select entries by the placed fields. A new field needs
// a line here with the next even tag.
func (n *AuditEntry) Fields(w *fields.Walk) {
	if !w.Packed() {
		fields.Text(w, "account", fields.Placed, 0, &n.Account)
		fields.Text(w, "id", fields.Placed, 0, &n.ID)
		fields.Bool(w, "pending", fields.Placed, 0, &n.Pending)
		fields.Time(w, "at", fields.Placed, 0, &n.At)
		fields.Text(w, "action", fields.Placed, 0, &n.Action)
		fields.Text(w, "targetKind", fields.Placed, 0, &n.Target.Kind)
		fields.Text(w, "targetId", fields.Placed, 0, &n.Target.ID)
	}
	fields.Text(w, "targetName", 2, 0, &n.Target.Name)
	fields.Text(w, "targetHint", 4, 0, &n.Target.Hint)
	fields.Text(w, "actorKind", 6, 0, &n.Actor.Kind)
	fields.Text(w, "actorId", 8, 0, &n.Actor.ID)
	fields.Text(w, "actorName", 10, 0, &n.Actor.Name)
	fields.Text(w, "actorHint", 12, 0, &n.Actor.Hint)
	fields.Texts(w, "changed", 14, 0, &n.Changed)
	fields.Text(w, "turned", 16, 0, &n.Turned)
	fields.Text(w, "requestId", 18, 0, &n.RequestID)
	fields.Text(w, "clientAddress", 20, 0, &n.ClientAddress)
	fields.Text(w, "object", 22, 0, &n.Object)
	fields.Text(w, "reason", 24, 0, &n.Reason)
	fields.Time(w, "since", 26, 0, &n.Since)
	fields.Time(w, "until", 28, 0, &n.Until)
}
