package dashboard

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/webhooks"
)

// Limits of a search: how many pages of each list it examines, their size, and how many results it
// shows.
const (
	searchedPages  = 10
	searchedAtOnce = 100
	maxFound       = 20
)

// A searchView is the template data for the results of a search. Each field …After holds the
// position at which to continue one of the lists, or done.
type searchView struct {
	Query      string
	Keys       []keyView
	Webhooks   []webhookView
	Deliveries []deliveryView
	Events     []foundEvent // without deliveries
	Types      []eventView
	Deleted    []pastView // audit entries for deleted keys and webhooks that match
	Renamed    []pastView // audit entries for keys and webhooks whose earlier name or URL matches

	More                                          bool
	KeysAfter, HooksAfter, EventsAfter, GoneAfter string
	Found                                         bool // this page or an earlier one has results
}

// count returns the number of results.
func (v *searchView) count() int {
	return len(v.Keys) + len(v.Webhooks) + len(v.Deliveries) + len(v.Events) + len(v.Types) + len(v.Deleted) + len(v.Renamed)
}

type foundEvent struct {
	ID, Text  string
	Published *when
}

// done marks a list that has been searched to its end.
const done = "-"

// maxQuery is the maximum length of a query in characters, as in the search field.
const maxQuery = 200

// tokens matches a key's value inside a text. Its first group is the last four random characters,
// which also end the hint of the key.
var tokens = regexp.MustCompile(`[A-Za-z0-9]_[A-Za-z0-9]{28}([A-Za-z0-9]{4})[A-Za-z0-9]{6}(?:$|[^A-Za-z0-9])`)

// hintIn looks for a key's value in text and returns the end of its hint, or "" if there is no
// value.
func hintIn(text string) string {
	if found := tokens.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// runs matches strings that are long enough to be a secret, such as the value of an imported key.
// ids matches the IDs that the library creates.
var (
	runs = regexp.MustCompile(`[A-Za-z0-9+/=_-]{16,}`)
	ids  = regexp.MustCompile(`^(` + keyPrefix + `|` + webhookPrefix + `|` + eventPrefix + `|rec_|aud_)[0-9A-Z]{26}$`)
)

// maybeSecret reports whether text could contain a secret, which must not appear in a URL. This is
// the case if text contains a long run of letters and digits that is not an ID of this service.
func maybeSecret(text string) bool {
	for _, run := range runs.FindAllString(text, -1) {
		if strings.ContainsAny(run, "0123456789") && !ids.MatchString(run) {
			return true
		}
	}
	return false
}

// A search is the state of a running search.
type search struct {
	*pages
	c    *call
	text string     // the query in lower case
	from url.Values // positions at which to continue the lists
	view searchView
}

// search handles the search form. It redirects to a URL with the query, so that users can bookmark
// the search, unless the query could contain a secret. Positions never appear in a URL.
func (p *pages) search(c *call) (response, error) {
	text := strings.TrimSpace(c.PostForm.Get("q"))
	if hint := hintIn(text); hint != "" {
		text = hint
	}
	if !c.PostForm.Has("keys") && !maybeSecret(text) {
		return goTo("search?q="+url.QueryEscape(text), ""), nil
	}
	a, err := p.find(c, text, c.PostForm)
	if a.redirect == "" {
		a.replace = "search"
	}
	return a, err
}

// showSearch shows the results for the query in the URL.
func (p *pages) showSearch(c *call) (response, error) {
	text := strings.TrimSpace(c.URL.Query().Get("q"))
	if hint := hintIn(text); hint != "" {
		return goTo("search?q="+hint, ""), nil
	}
	return p.find(c, text, nil)
}

// find finds keys by ID, name and hint, webhooks by ID and URL, events by ID, and event types by
// name and description. It starts at the positions in from. If there is only one result, it
// redirects to the page of that result.
func (p *pages) find(c *call, query string, from url.Values) (response, error) {
	s := &search{pages: p, c: c, text: strings.ToLower(query), from: from, view: searchView{Query: query}}
	s.view.KeysAfter, s.view.HooksAfter, s.view.EventsAfter, s.view.GoneAfter = done, done, done, done
	a := response{page: "search", title: "Search", query: query}
	if query == "" || !isText(query) || utf8.RuneCountInString(query) > maxQuery {
		a.data = s.view
		return a, nil
	}
	for _, part := range []struct {
		action auth.Action
		find   func() error
	}{{auth.ReadKeys, s.findKeys}, {auth.ReadWebhooks, s.findWebhooks}, {auth.ReadWebhooks, s.findEvents}, {auth.ReadEvents, s.findTypes}, {auth.ReadAudit, s.findPast}} {
		if p.permit(c.Request, part.action) != nil {
			continue
		}
		if err := part.find(); err != nil {
			return response{}, err
		}
	}
	v := &s.view
	v.More = v.KeysAfter != done || v.HooksAfter != done || v.EventsAfter != done || v.GoneAfter != done
	v.Found = v.count() > 0 || from.Has("found")
	if only := s.only(); only != "" {
		return goTo(only, ""), nil
	}
	a.data = *v
	return a, nil
}

// only returns the page of the single result if the search is complete or the query is the result's
// ID. Otherwise it returns "".
func (s *search) only() string {
	v := &s.view
	all := !v.More && !s.from.Has("found")
	switch {
	case v.count() != 1:
		return ""
	case len(v.Keys) == 1 && (all || v.Keys[0].ID == v.Query):
		return "api-keys/" + v.Keys[0].ID
	case len(v.Webhooks) == 1 && (all || v.Webhooks[0].ID == v.Query):
		return "webhooks/" + v.Webhooks[0].ID
	case len(v.Deleted) == 1 && (all || v.Deleted[0].Target == v.Query):
		return "audit-log?target=" + v.Deleted[0].Target
	case len(v.Renamed) == 1 && all:
		return "audit-log?target=" + v.Renamed[0].Target
	case len(v.Types) == 1 && all:
		return "events?type=" + url.QueryEscape(v.Types[0].Type)
	case len(v.Events) == 1 && v.Events[0].ID == v.Query && s.permit(s.c.Request, auth.ReadEvents) == nil:
		return "events/" + url.PathEscape(v.Query)
	case len(v.Deliveries) == 1 && v.Deliveries[0].EventID == v.Query:
		return "webhooks/" + v.Deliveries[0].WebhookID + "/deliveries/" + v.Deliveries[0].EventID
	}
	return ""
}

// has reports whether text contains the query.
func (s *search) has(text string) bool { return strings.Contains(strings.ToLower(text), s.text) }

// ends reports whether hint ends with the query. Queries of fewer than four characters never match.
func (s *search) ends(hint string) bool {
	return len(s.text) >= 4 && strings.HasSuffix(strings.ToLower(hint), s.text)
}

// each calls list for successive pages of a list. It starts at the position that s.from holds for
// parameter, and stops once list reports enough or the limit is reached. It returns the position at
// which to continue, or done.
func (s *search) each(parameter string, list func(after string) (next string, enough bool, err error)) (string, error) {
	after := s.from.Get(parameter)
	if after == done || !isID(after) {
		return done, nil
	}
	for range searchedPages {
		next, enough, err := list(after)
		if err != nil {
			return "", err
		}
		if next == "" {
			return done, nil
		}
		if after = next; enough {
			break
		}
	}
	return after, nil
}

// newest returns the position at which to start searching a list for IDs that begin with the query.
// Lists are in descending order of IDs, so the position is just before the greatest such ID. If
// after is set, the search has already started, and newest returns after. It also returns after if
// the query does not begin with prefix.
func (s *search) newest(after, prefix string) string {
	if after == "" && strings.HasPrefix(s.view.Query, prefix) {
		return s.view.Query + "~"
	}
	return after
}

func (s *search) findKeys() (err error) {
	v := &s.view
	if key, err := s.keys.Get(s.c.Context(), s.c.account, v.Query); !errors.Is(err, apierr.ErrNotFound) {
		v.KeysAfter, v.Keys = done, []keyView{s.viewKey(&key)}
		return err
	}
	v.KeysAfter, err = s.each("keys", func(after string) (string, bool, error) {
		page, err := s.keys.List(s.c.Context(), s.c.account, apikeys.KeyQuery{After: s.newest(after, keyPrefix), Limit: searchedAtOnce})
		for i := range page.Keys {
			key := &page.Keys[i]
			if strings.HasPrefix(key.ID, v.Query) || s.has(key.Name) || s.ends(key.Hint) || s.ends(key.PreviousHint) {
				v.Keys = append(v.Keys, s.viewKey(key))
			}
			if len(v.Keys) == maxFound && (i+1 < len(page.Keys) || page.Next != "") {
				return key.ID, true, err
			}
		}
		return page.Next, false, err
	})
	return err
}

func (s *search) findWebhooks() (err error) {
	v := &s.view
	if webhook, err := s.webhooks.Get(s.c.Context(), s.c.account, v.Query); !errors.Is(err, apierr.ErrNotFound) {
		v.HooksAfter, v.Webhooks = done, []webhookView{s.viewWebhook(&webhook)}
		return err
	}
	v.HooksAfter, err = s.each("webhooks", func(after string) (string, bool, error) {
		page, err := s.webhooks.List(s.c.Context(), s.c.account, webhooks.WebhookQuery{After: s.newest(after, webhookPrefix), Limit: searchedAtOnce})
		for i := range page.Webhooks {
			webhook := &page.Webhooks[i]
			if strings.HasPrefix(webhook.ID, v.Query) || s.has(webhook.URL) {
				v.Webhooks = append(v.Webhooks, s.viewWebhook(webhook))
			}
			if len(v.Webhooks) == maxFound && (i+1 < len(page.Webhooks) || page.Next != "") {
				return webhook.ID, true, err
			}
		}
		return page.Next, false, err
	})
	return err
}

// findPast finds deleted keys and webhooks by their last name, and existing ones by an earlier name
// or URL. It reports each object once, and none whose current name matches.
func (s *search) findPast() (err error) {
	v := &s.view
	found := make(map[string]bool)
	for _, key := range v.Keys {
		found[key.ID] = true
	}
	for _, webhook := range v.Webhooks {
		found[webhook.ID] = true
	}
	v.GoneAfter, err = s.each("deleted", func(after string) (string, bool, error) {
		page, err := s.entries.List(s.c.Context(), s.c.account, audit.Query{
			Actions: []audit.Action{audit.KeyDeleted, audit.WebhookDeleted, audit.KeyChanged, audit.WebhookChanged}, After: after, Limit: searchedAtOnce,
		})
		for i := range page.Entries {
			n := &page.Entries[i]
			deleted := n.Action == audit.KeyDeleted || n.Action == audit.WebhookDeleted
			switch {
			case !s.maySee(s.c, n.Target.Kind):
			case deleted && (strings.HasPrefix(n.Target.ID, v.Query) || s.has(n.Target.Name) || s.ends(n.Target.Hint)):
				v.Deleted = append(v.Deleted, s.viewPast(s.c, n, ""))
			case !deleted && (slices.Contains(n.Changed, "name") || slices.Contains(n.Changed, "url")) && s.has(n.Target.Name) && !found[n.Target.ID]:
				v.Renamed = append(v.Renamed, s.viewPast(s.c, n, ""))
			default:
				continue
			}
			found[n.Target.ID] = true
		}
		return page.Next, len(v.Deleted)+len(v.Renamed) >= maxFound, err
	})
	return err
}

// findEvents finds the event whose ID is the query. If no event has this ID, but the query looks
// like the beginning of an event ID of this service, it finds events whose IDs begin with the
// query.
func (s *search) findEvents() (err error) {
	v := &s.view
	v.EventsAfter = done
	found, err := s.findEvent(v.Query)
	if err != nil || found || !strings.HasPrefix(v.Query, eventPrefix) {
		return err
	}
	v.EventsAfter, err = s.each("events", func(after string) (string, bool, error) {
		page, err := s.webhooks.ListEvents(s.c.Context(), s.c.account, webhooks.EventQuery{After: after, Limit: searchedAtOnce})
		if err != nil {
			return "", false, err
		}
		for i := range page.Events {
			if !strings.HasPrefix(page.Events[i].ID, v.Query) {
				continue
			}
			if _, err := s.findEvent(page.Events[i].ID); err != nil {
				return "", false, err
			}
			if len(v.Deliveries)+len(v.Events) >= maxFound && i+1 < len(page.Events) {
				shown, err := s.webhooks.ListEvents(s.c.Context(), s.c.account, webhooks.EventQuery{After: after, Limit: i + 1})
				return shown.Next, true, err // the next page continues after this event
			}
		}
		return page.Next, len(v.Deliveries)+len(v.Events) >= maxFound, nil
	})
	return err
}

// findTypes finds declared event types by name and description.
func (s *search) findTypes() error {
	for _, t := range s.eventChoices(nil) {
		if !s.from.Has("found") && (s.has(t.Type) || s.has(t.Text)) {
			s.view.Types = append(s.view.Types, t)
		}
	}
	return nil
}

// findEvent adds the deliveries of an event, or the event itself if it has none. It reports whether
// the event exists.
func (s *search) findEvent(eventID string) (found bool, err error) {
	deliveries, err := s.webhooks.EventDeliveries(s.c.Context(), s.c.account, eventID)
	if err != nil {
		return false, unless(err, apierr.ErrNotFound)
	}
	s.view.Deliveries = append(s.view.Deliveries, s.viewDeliveries(deliveries)...)
	if len(deliveries) > 0 {
		return true, nil
	}
	event, err := s.webhooks.Event(s.c.Context(), s.c.account, eventID)
	if err != nil {
		return false, unless(err, apierr.ErrNotFound)
	}
	s.view.Events = append(s.view.Events, foundEvent{event.ID, s.viewEvent(event.Type).Text, s.when(event.Timestamp)})
	return true, nil
}

// unless returns err, or nil if err wraps other.
func unless(err, other error) error {
	if errors.Is(err, other) {
		return nil
	}
	return err
}
