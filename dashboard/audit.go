package dashboard

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
)

// An auditView is the template data for the audit log of an account, a key or a webhook.
type auditView struct {
	Target   string // ID of the key or webhook; empty means the whole account
	Name     string // the target's current name; empty if it was deleted or the user may not see it
	Page     string // the target's page
	Was      string // the target's name before its deletion
	Kind     audit.TargetKind
	Form     form // the filters
	Actions  []choice
	Filtered bool
	Events   []pastView
	After    bool
	Next     string
	Query    template.URL // the filters and the target, encoded, for links
	Post     url.Values   // form fields for the next page, if they must not be in a URL; or nil
}

// A pastView is the template data for an audit entry.
type pastView struct {
	At      *when
	Text    string
	Details []detailView
	Target  string // ID of the key or webhook; empty means the account
	Name    string // the target's current name; empty if it was deleted or the user may not see it
	Was     string // the target's name at that time, if Name is empty
	Hint    string // hint of the target key's value at that time
	Page    string // the target's page, if Name is not empty
	Actor   string
	ActorID string // ID of the acting key or person
	As      string // name of the acting key at that time
	AsHint  string // hint of the acting key's value
	Address string // address of the client
	Request string // ID of the request
}

// A detailView is one detail of an audit entry, shown as a link, a time, or text.
type detailView struct {
	Label string
	Text  string
	Page  string
	At    *when
}

// actionTexts are the labels of actions.
var actionTexts = map[audit.Action]string{
	audit.KeyCreated:          "Key created",
	audit.KeyImported:         "Key imported",
	audit.KeyChanged:          "Key changed",
	audit.KeyRotated:          "Key rotated",
	audit.KeyDeleted:          "Key revoked",
	audit.KeyExpiring:         "Key about to expire",
	audit.WebhookCreated:      "Webhook created",
	audit.WebhookChanged:      "Webhook changed",
	audit.WebhookRotated:      "Signing secret rotated",
	audit.WebhookDeleted:      "Webhook deleted",
	audit.WebhookFailing:      "Webhook failing",
	audit.WebhookOff:          "Webhook turned off",
	audit.WebhookRecovered:    "Webhook working again",
	audit.DeliveryRedelivered: "Event resent",
	audit.RecoveryStarted:     "Missed events resent",
	audit.AccountErased:       "Account data erased",
}

// fieldTexts are the labels of fields, the same as on the pages of keys and webhooks.
var fieldTexts = map[string]string{
	"name": "name", "scopes": "scopes", "expiresAt": "expiry", "labels": "labels",
	"url": "endpoint URL", "events": "events", "eventScopes": "scopes of all events", "resources": "resources", "active": "on/off state", "held": "hold", "threshold": "balance threshold", "headers": "request headers", "signatures": "signatures", "pausedUntil": "pause",
}

// turnedKey are the labels of [audit.Entry.Turned] for keys.
var turnedKey = map[string]string{"on": "resumed", "off": "paused"}

// actorTexts are the labels of the kinds of actors.
var actorTexts = map[audit.ActorKind]string{
	audit.ActorHost: "The service", audit.ActorKey: "API key", audit.ActorPerson: "", audit.ActorService: "Automatic",
}

// Prefixes of the IDs that the library creates.
const (
	keyPrefix     = "key_"
	webhookPrefix = "wh_"
	eventPrefix   = "evt_"
)

// filterAuditLog handles the filter form. It redirects to a URL that contains the filters, unless
// they could contain a secret.
func (p *pages) filterAuditLog(c *call) (response, error) {
	fields := make(url.Values)
	for _, name := range []string{"target", "action", "who", "from", "to", "after"} {
		if value := strings.TrimSpace(c.PostForm.Get(name)); value != "" {
			fields.Set(name, value)
		}
	}
	if hint := hintIn(fields.Get("who")); hint != "" {
		fields.Set("who", hint)
	}
	if !maybeSecret(fields.Get("who")) {
		return goTo("audit-log?"+fields.Encode(), ""), nil
	}
	a, err := p.auditLog(c, fields)
	a.replace = "audit-log"
	return a, err
}

// showAuditLog shows the audit log with the filters in the URL.
func (p *pages) showAuditLog(c *call) (response, error) {
	fields := c.URL.Query()
	if hint := hintIn(fields.Get("who")); hint != "" {
		fields.Set("who", hint)
		return goTo("audit-log?"+fields.Encode(), ""), nil
	}
	return p.auditLog(c, fields)
}

// auditLog lists audit entries, newest first. The optional filters select a target, an action, an
// acting person or key, and a period.
func (p *pages) auditLog(c *call, fields url.Values) (response, error) {
	f := newForm(fields)
	query := audit.Query{Since: f.moment("from"), Until: f.moment("to"), Limit: pageSize}
	if after := fields.Get("after"); isID(after) {
		query.After = after
	}
	if !query.Until.IsZero() && !query.Since.Before(query.Until) {
		f.Errors["to"] = "Must be after “From”."
	}
	view := auditView{Target: fields.Get("target"), Form: f, After: query.After != ""}
	a := response{page: "audit-log", title: "Audit log", tab: "audit-log"}
	switch target := view.Target; {
	case isID(target) && strings.HasPrefix(target, keyPrefix):
		query.Target, a.tab = audit.Target{Kind: audit.TargetKey, ID: target}, "keys"
	case isID(target) && strings.HasPrefix(target, webhookPrefix):
		query.Target, a.tab = audit.Target{Kind: audit.TargetWebhook, ID: target}, "webhooks"
	case target != "":
		return response{}, errNoPage
	}
	for _, action := range audit.Actions() {
		text, kind := actionTexts[action], targetOf(action)
		if text == "" || query.Target.Kind != "" && query.Target.Kind != kind {
			continue
		}
		view.Actions = append(view.Actions, choice{string(action), text})
		if f.Has("action", string(action)) {
			query.Actions = []audit.Action{action}
		}
	}
	view.Kind, view.Page = query.Target.Kind, targetPage(query.Target)
	filters := make(url.Values)
	for _, name := range []string{"action", "who", "from", "to"} {
		if value := strings.TrimSpace(fields.Get(name)); value != "" && isText(value) {
			filters.Set(name, value)
		}
	}
	view.Filtered = len(filters) > 0
	if view.Target != "" {
		a.title = "Audit log of " + view.Target
		filters.Set("target", view.Target)
	}
	if len(f.Errors) > 0 {
		a.status, a.data = http.StatusUnprocessableEntity, view
		return a, nil
	}
	if err := p.addPast(c, &view, query, strings.ToLower(filters.Get("who"))); err != nil {
		return response{}, err
	}
	if maybeSecret(filters.Get("who")) {
		view.Post = filters
	} else {
		view.Query = template.URL(filters.Encode())
	}
	a.data = view
	return a, nil
}

// targetOf returns the kind of target that an action has.
func targetOf(action audit.Action) audit.TargetKind {
	switch kind, _, _ := strings.Cut(string(action), "."); kind {
	case "key", "account":
		return audit.TargetKind(kind)
	}
	return audit.TargetWebhook // also for actions on deliveries and recoveries
}

// addPast adds entries to the view. If who is not empty, it adds only entries whose actor matches
// who, which must be lower case. It examines a limited number of audit entries.
func (p *pages) addPast(c *call, view *auditView, query audit.Query, who string) error {
	names := make(map[audit.Target]string)
	for range searchedPages {
		page, err := p.entries.List(c.Context(), c.account, query)
		if err != nil {
			return err
		}
		for i := range page.Entries {
			n := &page.Entries[i]
			if who != "" && !actedAs(&n.Actor, who) {
				continue
			}
			target := n.Target.Ref()
			if _, known := names[target]; !known {
				if names[target], err = p.nameOf(c, target); err != nil {
					return err
				}
			}
			past := p.viewPast(c, n, names[target])
			view.Events = append(view.Events, past)
			if view.Target != "" && view.Was == "" {
				view.Was = past.Was
			}
		}
		view.Next, query.After = page.Next, page.Next
		if who == "" || page.Next == "" || len(view.Events) >= pageSize {
			break
		}
	}
	view.Name = names[query.Target.Ref()]
	return nil
}

// actedAs reports whether the actor's name or ID contains text, or the actor's hint ends with text,
// which must be lower case.
func actedAs(actor *audit.Actor, text string) bool {
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	return has(actor.Name) || has(actor.ID) || len(text) >= 4 && strings.HasSuffix(strings.ToLower(actor.Hint), text)
}

// nameOf returns the current name of a key or webhook. It returns "" if the target was deleted or
// the user may not see it.
func (p *pages) nameOf(c *call, target audit.Target) (string, error) {
	if !p.maySee(c, target.Kind) {
		return "", nil
	}
	switch target.Kind {
	case audit.TargetKey:
		key, err := p.keys.Get(c.Context(), c.account, target.ID)
		return key.Name, unless(err, apierr.ErrNotFound)
	case audit.TargetWebhook:
		webhook, err := p.webhooks.Get(c.Context(), c.account, target.ID)
		return webhook.URL, unless(err, apierr.ErrNotFound)
	}
	return "", nil
}

// maySee reports whether the user may see the names of targets of this kind, keys or webhooks.
func (p *pages) maySee(c *call, kind audit.TargetKind) bool {
	switch kind {
	case audit.TargetKey:
		return p.permit(c.Request, auth.ReadKeys) == nil
	case audit.TargetWebhook:
		return p.permit(c.Request, auth.ReadWebhooks) == nil
	}
	return false
}

// viewPast returns the template data for an audit entry whose target has the given current name.
func (p *pages) viewPast(c *call, n *audit.Entry, name string) pastView {
	view := pastView{
		At: p.when(n.At), Text: actionTexts[n.Action], Target: n.Target.ID, Name: name,
		Actor: actorTexts[n.Actor.Kind], ActorID: n.Actor.ID, Address: n.ClientAddress, Request: n.RequestID,
	}
	if p.maySee(c, n.Target.Kind) {
		if view.Hint = n.Target.Hint; name == "" {
			view.Was = n.Target.Name
		}
	}
	if n.Actor.Kind == audit.ActorKey && p.maySee(c, audit.TargetKey) {
		view.As, view.AsHint = n.Actor.Name, n.Actor.Hint
	}
	if view.Text == "" {
		view.Text = string(n.Action)
	}
	page := targetPage(n.Target)
	if name == "" {
		page = ""
	}
	view.Page = page
	switch {
	case n.Action == audit.WebhookChanged && slices.Equal(n.Changed, []string{"held"}):
		view.Text = "Webhook released"
	case n.Turned != "" && slices.Equal(n.Changed, []string{"active"}):
		view.Text = "Webhook turned " + n.Turned
	case n.Turned != "" && slices.Equal(n.Changed, []string{"enabled"}):
		view.Text = "Key " + turnedKey[n.Turned]
	case n.Turned != "" && slices.Equal(n.Changed, []string{"pausedUntil"}):
		view.Text = "Webhook " + n.Turned
	case len(n.Changed) > 0:
		var fields []string
		for _, field := range n.Changed {
			switch text := fieldTexts[field]; {
			case field == "active" && n.Turned != "":
				field = "turned " + n.Turned
			case field == "enabled" && n.Turned != "":
				field = turnedKey[n.Turned]
			case text != "":
				field = text
			}
			fields = append(fields, field)
		}
		view.Details = append(view.Details, detailView{Text: strings.Join(fields, ", ")})
	}
	add := func(d detailView) { view.Details = append(view.Details, d) }
	switch n.Action {
	case audit.DeliveryRedelivered:
		add(detailView{Text: n.Object, Page: under(page, "/deliveries/"+n.Object)})
	case audit.RecoveryStarted:
		add(detailView{Text: n.Object, Page: under(page, "/recoveries/"+n.Object)})
	case audit.KeyExpiring:
		if n.Reason == audit.ReasonLifetime {
			add(detailView{Text: "the service limits how long keys work"})
		}
	case audit.WebhookOff:
		if n.Reason == "gone" {
			add(detailView{Text: "the endpoint responded 410 Gone"})
		} else {
			add(detailView{Text: "every attempt had failed"})
		}
	}
	if until := p.when(n.Until); until != nil {
		label := ""
		switch n.Action {
		case audit.KeyCreated, audit.KeyImported, audit.KeyExpiring:
			label = "expires"
		case audit.KeyRotated:
			label = "previous value works until"
		case audit.WebhookRotated:
			label = "previous secret signs until"
		case audit.WebhookChanged:
			label = "paused until"
		case audit.WebhookFailing:
			label = "turned off at the earliest"
		}
		if label != "" {
			add(detailView{Label: label, At: until})
		}
	}
	return view
}

// under returns the path of a page below page, or "" if page is empty.
func under(page, rest string) string {
	if page == "" {
		return ""
	}
	return page + rest
}

// targetPage returns the page of a key or webhook, or "" for any other target.
func targetPage(target audit.Target) string {
	switch target.Kind {
	case audit.TargetKey:
		return "api-keys/" + target.ID
	case audit.TargetWebhook:
		return "webhooks/" + target.ID
	}
	return ""
}
