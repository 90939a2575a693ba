package transfer

import "github.com/storageapi/storageapi/notices"

type noticePayload struct {
	Account       string             `json:"account,omitempty"`
	ID            string             `json:"id"`
	StoredAt      millis             `json:"storedAt"`
	At            millis             `json:"at,omitzero"`
	Action        notices.Action     `json:"action"`
	TargetKind    notices.TargetKind `json:"targetKind,omitempty"`
	TargetID      string             `json:"targetId,omitempty"`
	ActorKind     notices.ActorKind  `json:"actorKind,omitempty"`
	ActorID       string             `json:"actorId,omitempty"`
	Changed       []string           `json:"changed,omitempty"`
	RequestID     string             `json:"requestId,omitempty"`
	ClientAddress string             `json:"clientAddress,omitempty"`
	Object        string             `json:"object,omitempty"`
	Reason        string             `json:"reason,omitempty"`
	Since         millis             `json:"since,omitzero"`
	Until         millis             `json:"until,omitzero"`
	Pending       bool               `json:"pending,omitempty"`
}

func payloadOfNotice(r *Notice) noticePayload {
	return noticePayload{
		r.Account, r.ID, millis{r.StoredAt}, millis{r.At}, r.Action, r.Target.Kind, r.Target.ID, r.Actor.Kind, r.Actor.ID, r.Changed,
		r.RequestID, r.ClientAddress, r.Object, r.Reason, millis{r.Since}, millis{r.Until}, r.Pending,
	}
}

func (p noticePayload) record() (Record, error) {
	return &Notice{notices.Notice{
		Account: p.Account, ID: p.ID, At: p.At.Time, Action: p.Action, Target: notices.Target{Kind: p.TargetKind, ID: p.TargetID},
		Actor: notices.Actor{Kind: p.ActorKind, ID: p.ActorID}, Changed: p.Changed, RequestID: p.RequestID, ClientAddress: p.ClientAddress,
		Object: p.Object, Reason: p.Reason, Since: p.Since.Time, Until: p.Until.Time, Pending: p.Pending,
	}, p.StoredAt.Time}, nil
}
