package dashboard

import (
	"slices"
	"strings"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// A historyView is the view of what happened in an account, or to one key or webhook.
type historyView struct {
	Target string // its id; empty: the whole account
	Name   string // of it, as it is now; empty: it is gone, or not for the user
	Page   string // of it
	Kind   notices.TargetKind
	Events []pastView
	After  bool
	Next   string
}

// A pastView is the view of one thing that happened.
type pastView struct {
	At      *when
	Text    string
	Details []detailView
	Target  string // the id of the key or webhook; empty: the account
	Name    string // of it, as it is now; empty: it is gone, or not for the user
	Page    string // of it, if it has a name
	Actor   string
	ActorID string // of a key or person
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

// showHistory lists what happened, newest first, to what the parameter "target" names.
func (p *pages) showHistory(c *call) (answer, error) {
	query := notices.Query{After: c.after(), Limit: pageSize}
	target := c.URL.Query().Get("target")
	a := answer{page: "history", title: "History", tab: "history"}
	switch {
	case isID(target) && strings.HasPrefix(target, keyPrefix):
		query.Target, a.tab = notices.Target{Kind: notices.TargetKey, ID: target}, "keys"
	case isID(target) && strings.HasPrefix(target, webhookPrefix):
		query.Target, a.tab = notices.Target{Kind: notices.TargetWebhook, ID: target}, "webhooks"
	case target != "":
		return answer{}, errNoPage
	}
	page, err := p.notices.List(c.Context(), c.account, query)
	if err != nil {
		return answer{}, err
	}
	view := historyView{Target: target, Kind: query.Target.Kind, After: query.After != "", Next: page.Next}
	names := make(map[notices.Target]string)
	for i := range page.Notices {
		n := &page.Notices[i]
		if _, known := names[n.Target]; !known {
			if names[n.Target], err = p.nameOf(c, n.Target); err != nil {
				return answer{}, err
			}
		}
		view.Events = append(view.Events, p.viewPast(n, names[n.Target]))
	}
	view.Name, view.Page = names[query.Target], targetPage(query.Target)
	if target != "" {
		a.title = "History of " + target
	}
	a.data = view
	return a, nil
}

// nameOf returns what a key or webhook is called now, or "" if it is gone, or the user may
// not see it.
func (p *pages) nameOf(c *call, target notices.Target) (string, error) {
	switch {
	case target.Kind == notices.TargetKey && p.permit(c.Request, auth.ReadKeys) == nil:
		key, err := p.keys.Get(c.Context(), c.account, target.ID)
		return key.Name, unless(err, apikeys.ErrNotFound)
	case target.Kind == notices.TargetWebhook && p.permit(c.Request, auth.ReadWebhooks) == nil:
		webhook, err := p.webhooks.Get(c.Context(), c.account, target.ID)
		return webhook.URL, unless(err, webhooks.ErrNotFound)
	}
	return "", nil
}

// viewPast returns the view of what happened to what is called so now.
func (p *pages) viewPast(n *notices.Notice, name string) pastView {
	view := pastView{
		At: p.when(n.At), Text: actionTexts[n.Action], Target: n.Target.ID, Name: name,
		Actor: actorTexts[n.Actor.Kind], ActorID: n.Actor.ID, Address: n.ClientAddress, Request: n.RequestID,
	}
	if view.Text == "" {
		view.Text = string(n.Action)
	}
	page := targetPage(n.Target)
	if name == "" {
		page = ""
	}
	view.Page = page
	if n.Action == notices.WebhookChanged && slices.Equal(n.Changed, []string{"held"}) {
		view.Text = "Webhook released"
	} else if len(n.Changed) > 0 {
		var fields []string
		for _, field := range n.Changed {
			if text := fieldTexts[field]; text != "" {
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
