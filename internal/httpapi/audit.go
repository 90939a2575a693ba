package httpapi

import (
	"net/url"
	"slices"

	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/id"
)

// An auditView is the JSON form of an audit entry.
type auditView struct {
	ID            string    `json:"id"`
	OccurredAt    timestamp `json:"occurredAt"`
	Action        string    `json:"action"`
	Target        auditSide `json:"target"`
	Actor         auditSide `json:"actor"`
	ChangedFields []string  `json:"changedFields"`
	Turned        *string   `json:"turned"`
	RequestID     *string   `json:"requestId"`
	ClientAddress *string   `json:"clientAddress"`
	EventID       *string   `json:"eventId"`
	RecoveryID    *string   `json:"recoveryId"`
	Reason        *string   `json:"reason"`
	Since         timestamp `json:"since"`
	Until         timestamp `json:"until"`
}

// An auditSide is the JSON form of the actor or the target of an audit entry.
type auditSide struct {
	Kind string  `json:"kind"`
	ID   *string `json:"id"`
	Name *string `json:"name"`
	Hint *string `json:"hint"`
}

// A creatorView is the JSON form of the creator of a key.
type creatorView struct {
	Kind string  `json:"kind"`
	ID   *string `json:"id"`
}

// viewCreator returns the JSON form of a key's creator, or nil if the creator is unknown.
func viewCreator(a audit.Actor) *creatorView {
	if a.Kind == "" {
		return nil
	}
	return &creatorView{string(a.Kind), orNull(a.ID)}
}

func viewAuditEntry(n audit.Entry) auditView {
	view := auditView{
		ID: n.ID, OccurredAt: timestamp(n.At), Action: string(n.Action),
		Target: auditSide{string(n.Target.Kind), orNull(n.Target.ID), orNull(n.Target.Name), orNull(n.Target.Hint)},
		Actor:  auditSide{string(n.Actor.Kind), orNull(n.Actor.ID), orNull(n.Actor.Name), orNull(n.Actor.Hint)},

		ChangedFields: n.Changed, Turned: orNull(n.Turned), RequestID: orNull(n.RequestID), ClientAddress: orNull(n.ClientAddress),
		Reason: orNull(n.Reason), Since: timestamp(n.Since), Until: timestamp(n.Until),
	}
	if view.ChangedFields == nil {
		view.ChangedFields = []string{}
	}
	if i := slices.Index(n.Changed, "threshold"); i >= 0 {
		view.ChangedFields = slices.Clone(n.Changed)
		view.ChangedFields[i] = thresholdField
	}
	switch n.Action {
	case audit.DeliveryRedelivered:
		view.EventID = orNull(n.Object)
	case audit.RecoveryStarted:
		view.RecoveryID = orNull(n.Object)
	}
	return view
}

// auditCursor is the list name in the cursors of the audit log.
const auditCursor = "audit"

func (a *api) listAuditLog(c *call) (response, error) {
	query, err := parseAuditQuery(c.query)
	if err != nil {
		return response{}, err
	}
	if query.Target.ID != "" {
		there, err := a.seesTarget(c, query.Target)
		if err != nil {
			return response{}, err
		}
		if !there { // the field hasMore must not reveal that a hidden target has entries
			return showList(nil, "", viewAuditEntry)
		}
	}
	page, err := a.entries.List(c.Context(), c.caller.Account, query)
	if err != nil {
		return response{}, err
	}
	if page.Entries, err = a.seenEntries(c, page.Entries); err != nil {
		return response{}, err
	}
	if page.Next != "" {
		page.Next = auditCursor + "/" + page.Next
	}
	return showList(page.Entries, page.Next, viewAuditEntry)
}

// parseAuditQuery parses the optional parameters target, action (repeatable), since, until, limit
// and cursor of the audit log.
func parseAuditQuery(values url.Values) (parsed audit.Query, err error) {
	if parsed.Limit, err = parseLimit(values); err != nil {
		return parsed, err
	}
	if texts, given := values["cursor"]; given {
		var valid bool
		if parsed.After, valid = parseListCursor(texts[0], auditCursor); !valid || len(texts) > 1 {
			return parsed, errCursor
		}
	}
	if texts, given := values["target"]; given {
		parsed.Target.ID = texts[0]
		switch {
		case len(texts) == 1 && id.Valid(id.Key, texts[0]):
			parsed.Target.Kind = audit.TargetKey
		case len(texts) == 1 && id.Valid(id.Webhook, texts[0]):
			parsed.Target.Kind = audit.TargetWebhook
		default:
			return parsed, invalid("target", "must be a single id of an API key or a webhook")
		}
	}
	for _, action := range values["action"] {
		if !slices.Contains(audit.Actions(), audit.Action(action)) {
			return parsed, invalid("action", "must be an action of the audit log, such as key.created; repeat the parameter for several")
		}
		if !slices.Contains(parsed.Actions, audit.Action(action)) {
			parsed.Actions = append(parsed.Actions, audit.Action(action))
		}
	}
	if parsed.Since, err = parseBoundIn(values, "since"); err != nil {
		return parsed, err
	}
	if parsed.Until, err = parseBoundIn(values, "until"); err != nil {
		return parsed, err
	}
	if !parsed.Since.IsZero() && !parsed.Until.IsZero() && !parsed.Since.Before(parsed.Until) {
		return parsed, invalid("since", `must be before "until"`)
	}
	return parsed, nil
}
