package transfer

import "github.com/storageapi/storageapi/audit"

type entryPayload struct {
	Account       string           `json:"account,omitempty"`
	ID            string           `json:"id"`
	StoredAt      millis           `json:"storedAt"`
	At            millis           `json:"at,omitzero"`
	Action        audit.Action     `json:"action"`
	TargetKind    audit.TargetKind `json:"targetKind,omitempty"`
	TargetID      string           `json:"targetId,omitempty"`
	TargetName    string           `json:"targetName,omitempty"`
	TargetHint    string           `json:"targetHint,omitempty"`
	ActorKind     audit.ActorKind  `json:"actorKind,omitempty"`
	ActorID       string           `json:"actorId,omitempty"`
	ActorName     string           `json:"actorName,omitempty"`
	ActorHint     string           `json:"actorHint,omitempty"`
	Changed       []string         `json:"changed,omitempty"`
	Turned        string           `json:"turned,omitempty"`
	RequestID     string           `json:"requestId,omitempty"`
	ClientAddress string           `json:"clientAddress,omitempty"`
	Object        string           `json:"object,omitempty"`
	Reason        string           `json:"reason,omitempty"`
	Since         millis           `json:"since,omitzero"`
	Until         millis           `json:"until,omitzero"`
	Pending       bool             `json:"pending,omitempty"`
}

func payloadOfAuditEntry(r *AuditEntry) entryPayload {
	return entryPayload{
		r.Account, r.ID, millis{r.StoredAt}, millis{r.At}, r.Action,
		r.Target.Kind, r.Target.ID, r.Target.Name, r.Target.Hint, r.Actor.Kind, r.Actor.ID, r.Actor.Name, r.Actor.Hint, r.Changed, r.Turned,
		r.RequestID, r.ClientAddress, r.Object, r.Reason, millis{r.Since}, millis{r.Until}, r.Pending,
	}
}

func (p entryPayload) record() (Record, error) {
	return &AuditEntry{audit.Entry{
		Account: p.Account, ID: p.ID, At: p.At.Time, Action: p.Action, Changed: p.Changed, Turned: p.Turned,
		Target: audit.Target{Kind: p.TargetKind, ID: p.TargetID, Name: p.TargetName, Hint: p.TargetHint},
		Actor:  audit.Actor{Kind: p.ActorKind, ID: p.ActorID, Name: p.ActorName, Hint: p.ActorHint}, RequestID: p.RequestID, ClientAddress: p.ClientAddress,
		Object: p.Object, Reason: p.Reason, Since: p.Since.Time, Until: p.Until.Time, Pending: p.Pending,
	}, p.StoredAt.Time}, nil
}
