package dashboard

import (
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// A historyView is the view of what happened in an account, or to one key or webhook.
type historyView struct {
	Target   string // its id; empty: the whole account
	Name     string // of it, as it is now; empty: it is gone, or not for the user
	Page     string // of it
	Was      string // its name before it was gone
	Kind     notices.TargetKind
	Form     form // the filters
	Actions  []choice
	Filtered bool
	Events   []pastView
	After    bool
	Next     string
	Query    template.URL // the filters and the target, encoded, for links
	Post     url.Values   // what the form for the next page sends, because it has no place in an address; or nil
}

// A pastView is the view of one thing that happened.
type pastView struct {
	At      *when
	Text    string
	Details []detailView
	Target  string // the id of the key or webhook; empty: the account
	Name    string // of it, as it is now; empty: it is gone, or not for the user
	Was     string // its name then, if it has none now
	Hint    string // of a key's value then
	Page    string // of it, if it has a name
	Actor   string
	ActorID string // of a key or person
	As      string // the name of the key that acted, then
	AsHint  string // and the hint of its value
	Address string // of the client
	Request string // its id
}

// A detailView is a part of what happened: a link, a time, or words.
type detailView struct {
	Label string
	Text  string
	Page  string
	At    *when
}

// actionTexts are what happened, as people read it.
var actionTexts = map[notices.Action]string{
	notices.KeyCreated:          "Key created",
	notices.KeyImported:         "Key imported",
	notices.KeyChanged:          "Key changed",
	notices.KeyRotated:          "Key rotated",
	notices.KeyDeleted:          "Key revoked",
	notices.KeyExpiring:         "Key about to expire",
	notices.WebhookCreated:      "Webhook created",
	notices.WebhookChanged:      "Webhook changed",
	notices.WebhookRotated:      "Signing secret rotated",
	notices.WebhookDeleted:      "Webhook deleted",
	notices.WebhookFailing:      "Webhook failing",
	notices.WebhookOff:          "Webhook turned off",
	notices.WebhookRecovered:    "Webhook working again",
	notices.DeliveryRedelivered: "Event resent",
	notices.RecoveryStarted:     "Missed events resent",
	notices.AccountErased:       "Account data erased",
}

// fieldTexts are the fields of keys and webhooks as their pages call them.
var fieldTexts = map[string]string{
	"name": "name", "scopes": "scopes", "expiresAt": "expiry",
	"url": "endpoint URL", "events": "events", "active": "on/off state", "held": "hold", "balanceThreshold": "balance threshold",
}

// actorTexts are the kinds of actors as people read them.
var actorTexts = map[notices.ActorKind]string{
	notices.ActorHost: "The service", notices.ActorKey: "API key", notices.ActorPerson: "", notices.ActorService: "Automatic",
}

// What ids of keys, webhooks and events begin with, as the service gives them.
const (
	keyPrefix     = "key_"
	webhookPrefix = "wh_"
	eventPrefix   = "evt_"
)

// filterHistory answers the form of the filters. What could hold a secret has no place in the
// address.
func (p *pages) filterHistory(c *call) (answer, error) {
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
		return goTo("history?"+fields.Encode(), ""), nil
	}
	a, err := p.history(c, fields)
	a.replace = "history"
	return a, err
}

// showHistory shows what the parameters ask for.
func (p *pages) showHistory(c *call) (answer, error) {
	fields := c.URL.Query()
	if hint := hintIn(fields.Get("who")); hint != "" {
		fields.Set("who", hint)
		return goTo("history?"+fields.Encode(), ""), nil
	}
	return p.history(c, fields)
}

// history lists what happened, newest first: to the target, of an action, by a person or key, and from a
// time on and before another, each of which may be absent.
func (p *pages) history(c *call, fields url.Values) (answer, error) {
	f := newForm(fields)
	query := notices.Query{Since: f.moment("from"), Until: f.moment("to"), Limit: pageSize}
	if after := fields.Get("after"); isID(after) {
		query.After = after
	}
	if !query.Until.IsZero() && !query.Since.Before(query.Until) {
		f.Errors["to"] = "Must be after “From”."
	}
	view := historyView{Target: fields.Get("target"), Form: f, After: query.After != ""}
	a := answer{page: "history", title: "History", tab: "history"}
	switch target := view.Target; {
	case isID(target) && strings.HasPrefix(target, keyPrefix):
		query.Target, a.tab = notices.Target{Kind: notices.TargetKey, ID: target}, "keys"
	case isID(target) && strings.HasPrefix(target, webhookPrefix):
		query.Target, a.tab = notices.Target{Kind: notices.TargetWebhook, ID: target}, "webhooks"
	case target != "":
		return answer{}, errNoPage
	}
	for _, action := range notices.Actions() {
		text, kind := actionTexts[action], targetOf(action)
		if text == "" || query.Target.Kind != "" && query.Target.Kind != kind {
			continue
		}
		view.Actions = append(view.Actions, choice{string(action), text})
		if f.Has("action", string(action)) {
			query.Actions = []notices.Action{action}
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
		a.title = "History of " + view.Target
		filters.Set("target", view.Target)
	}
	if len(f.Errors) > 0 {
		a.status, a.data = http.StatusUnprocessableEntity, view
		return a, nil
	}
	if err := p.addPast(c, &view, query, strings.ToLower(filters.Get("who"))); err != nil {
		return answer{}, err
	}
	if maybeSecret(filters.Get("who")) {
		view.Post = filters
	} else {
		view.Query = template.URL(filters.Encode())
	}
	a.data = view
	return a, nil
}

// targetOf returns the kind of the targets of an action.
func targetOf(action notices.Action) notices.TargetKind {
	switch kind, _, _ := strings.Cut(string(action), "."); kind {
	case "key", "account":
		return notices.TargetKind(kind)
	}
	return notices.TargetWebhook // deliveries and recoveries are a webhook's
}

// addPast adds to the view what happened and was done by who, which is lower case; empty: by anybody. It
// looks at a bounded number of notices.
func (p *pages) addPast(c *call, view *historyView, query notices.Query, who string) error {
	names := make(map[notices.Target]string)
	for range searchedPages {
		page, err := p.notices.List(c.Context(), c.account, query)
		if err != nil {
			return err
		}
		for i := range page.Notices {
			n := &page.Notices[i]
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

// actedAs reports whether an actor has the text, which is lower case, in its name or ID, or at the end
// of its hint.
func actedAs(actor *notices.Actor, text string) bool {
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	return has(actor.Name) || has(actor.ID) || len(text) >= 4 && strings.HasSuffix(strings.ToLower(actor.Hint), text)
}

// nameOf returns what a key or webhook is called now, or "" if it is gone, or the user may
// not see it.
func (p *pages) nameOf(c *call, target notices.Target) (string, error) {
	if !p.maySee(c, target.Kind) {
		return "", nil
	}
	switch target.Kind {
	case notices.TargetKey:
		key, err := p.keys.Get(c.Context(), c.account, target.ID)
		return key.Name, unless(err, apikeys.ErrNotFound)
	case notices.TargetWebhook:
		webhook, err := p.webhooks.Get(c.Context(), c.account, target.ID)
		return webhook.URL, unless(err, webhooks.ErrNotFound)
	}
	return "", nil
}

// maySee reports whether the user may see what a key or webhook is called.
func (p *pages) maySee(c *call, kind notices.TargetKind) bool {
	switch kind {
	case notices.TargetKey:
		return p.permit(c.Request, auth.ReadKeys) == nil
	case notices.TargetWebhook:
		return p.permit(c.Request, auth.ReadWebhooks) == nil
	}
	return false
}

// viewPast returns the view of what happened to the target with that name now.
func (p *pages) viewPast(c *call, n *notices.Notice, name string) pastView {
	view := pastView{
		At: p.when(n.At), Text: actionTexts[n.Action], Target: n.Target.ID, Name: name,
		Actor: actorTexts[n.Actor.Kind], ActorID: n.Actor.ID, Address: n.ClientAddress, Request: n.RequestID,
	}
	if p.maySee(c, n.Target.Kind) {
		if view.Hint = n.Target.Hint; name == "" {
			view.Was = n.Target.Name
		}
	}
	if n.Actor.Kind == notices.ActorKey && p.maySee(c, notices.TargetKey) {
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
	case n.Action == notices.WebhookChanged && slices.Equal(n.Changed, []string{"held"}):
		view.Text = "Webhook released"
	case n.Turned != "" && slices.Equal(n.Changed, []string{"active"}):
		view.Text = "Webhook turned " + n.Turned
	case len(n.Changed) > 0:
		var fields []string
		for _, field := range n.Changed {
			switch text := fieldTexts[field]; {
			case field == "active" && n.Turned != "":
				field = "turned " + n.Turned
			case text != "":
				field = text
			}
			fields = append(fields, field)
		}
		view.Details = append(view.Details, detailView{Text: strings.Join(fields, ", ")})
	}
	add := func(d detailView) { view.Details = append(view.Details, d) }
	switch n.Action {
	case notices.DeliveryRedelivered:
		add(detailView{Text: n.Object, Page: under(page, "/deliveries/"+n.Object)})
	case notices.RecoveryStarted:
		add(detailView{Text: n.Object, Page: under(page, "/recoveries/"+n.Object)})
	case notices.WebhookOff:
		if n.Reason == "gone" {
			add(detailView{Text: "the endpoint responded 410 Gone"})
		} else {
			add(detailView{Text: "every attempt had failed"})
		}
	}
	if until := p.when(n.Until); until != nil {
		label := ""
		switch n.Action {
		case notices.KeyCreated, notices.KeyImported, notices.KeyExpiring:
			label = "expires"
		case notices.KeyRotated:
			label = "previous value works until"
		case notices.WebhookRotated:
			label = "previous secret signs until"
		case notices.WebhookFailing:
			label = "turned off at the earliest"
		}
		if label != "" {
			add(detailView{Label: label, At: until})
		}
	}
	return view
}

// under returns a page that is under another, if there is that.
func under(page, rest string) string {
	if page == "" {
		return ""
	}
	return page + rest
}

// targetPage returns the page of a key or webhook, or "".
func targetPage(target notices.Target) string {
	switch target.Kind {
	case notices.TargetKey:
		return "api-keys/" + target.ID
	case notices.TargetWebhook:
		return "webhooks/" + target.ID
	}
	return ""
}
