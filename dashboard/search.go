package dashboard

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// How much a search looks at, of keys, webhooks and events each, and how many it shows.
const (
	searchedPages  = 10
	searchedAtOnce = 100
	maxFound       = 20
)

// A searchView is the view of what was found. Of what has been searched in part, the After
// is where to go on.
type searchView struct {
	Query      string
	Keys       []keyView
	Webhooks   []webhookView
	Deliveries []deliveryView
	Events     []foundEvent // that were sent to no webhook
	Deleted    []pastView   // how keys and webhooks were deleted
	Renamed    []pastView   // how they lost a name or URL that was searched for

	More                                          bool
	KeysAfter, HooksAfter, EventsAfter, GoneAfter string
	Found                                         bool // something was, on this page or before
}

// count returns how many things were found.
func (v *searchView) count() int {
	return len(v.Keys) + len(v.Webhooks) + len(v.Deliveries) + len(v.Events) + len(v.Deleted) + len(v.Renamed)
}

type foundEvent struct {
	ID, Text  string
	Published *when
}

// done is where a search goes on that has come to the end.
const done = "-"

// maxQuery is how many characters a query has at most, as its field takes them.
const maxQuery = 200

// tokens are values of keys, as apikeys makes them, with whatever they were copied with. The first
// group has the last of the random characters.
var tokens = regexp.MustCompile(`[A-Za-z0-9]_[A-Za-z0-9]{28}([A-Za-z0-9]{4})[A-Za-z0-9]{6}(?:$|[^A-Za-z0-9])`)

// hintIn returns the end of the hint of a key's value in a text, or "" if there is none.
func hintIn(text string) string {
	if found := tokens.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return ""
}

// runs are long enough for a secret, such as the value of an imported key; ids are those that this
// service makes.
var (
	runs = regexp.MustCompile(`[A-Za-z0-9+/=_-]{16,}`)
	ids  = regexp.MustCompile(`^(` + keyPrefix + `|` + webhookPrefix + `|` + eventPrefix + `|rec_|ntc_)[0-9A-Z]{26}$`)
)

// maybeSecret reports whether a text could hold a secret, and so has no place in an address: it has
// a long run of letters and digits that is no id of this service.
func maybeSecret(text string) bool {
	for _, run := range runs.FindAllString(text, -1) {
		if strings.ContainsAny(run, "0123456789") && !ids.MatchString(run) {
			return true
		}
	}
	return false
}

// A search is one that is under way.
type search struct {
	*pages
	c    *call
	text string     // lower case
	from url.Values // where the lists go on
	view searchView
}

// search answers the form of a search. What was searched for gets into the address, so that people
// can come back to it, unless it could hold a secret. Where an older part begins never does.
func (p *pages) search(c *call) (answer, error) {
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

// showSearch shows what the text in the address finds.
func (p *pages) showSearch(c *call) (answer, error) {
	text := strings.TrimSpace(c.URL.Query().Get("q"))
	if hint := hintIn(text); hint != "" {
		return goTo("search?q="+hint, ""), nil
	}
	return p.find(c, text, nil)
}

// find finds keys by id, name and hint, webhooks by id and URL, and events by id, from where the form
// says on. What is the only one of that id or name is shown at once.
func (p *pages) find(c *call, query string, from url.Values) (answer, error) {
	s := &search{pages: p, c: c, text: strings.ToLower(query), from: from, view: searchView{Query: query}}
	s.view.KeysAfter, s.view.HooksAfter, s.view.EventsAfter, s.view.GoneAfter = done, done, done, done
	a := answer{page: "search", title: "Search", query: query}
	if query == "" || !isText(query) || utf8.RuneCountInString(query) > maxQuery {
		a.data = s.view
		return a, nil
	}
	for _, part := range []struct {
		action auth.Action
		find   func() error
	}{{auth.ReadKeys, s.findKeys}, {auth.ReadWebhooks, s.findWebhooks}, {auth.ReadWebhooks, s.findEvents}, {auth.ReadAudit, s.findPast}} {
		if p.permit(c.Request, part.action) != nil {
			continue
		}
		if err := part.find(); err != nil {
			return answer{}, err
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

// only returns the page of what was found, if it is one thing and all has been searched, or
// is what has that id.
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
		return "history?target=" + v.Deleted[0].Target
	case len(v.Renamed) == 1 && all:
		return "history?target=" + v.Renamed[0].Target
	case len(v.Deliveries) == 1 && v.Deliveries[0].EventID == v.Query:
		return "webhooks/" + v.Deliveries[0].WebhookID + "/deliveries/" + v.Deliveries[0].EventID
	}
	return ""
}

// has reports whether a text has what is searched for in it.
func (s *search) has(text string) bool { return strings.Contains(strings.ToLower(text), s.text) }

// ends reports whether a hint ends in what is searched for, which has its four characters.
func (s *search) ends(hint string) bool {
	return len(s.text) >= 4 && strings.HasSuffix(strings.ToLower(hint), s.text)
}

// each looks at a part of a list, from where the parameter says on, until enough is found
// or looked at. It returns where to go on, or done. list takes where to begin.
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

// newest returns where lists begin that are looked through for ids that begin with the query:
// with the greatest of these. Lists are in descending order of ids.
func (s *search) newest(after, prefix string) string {
	if after == "" && strings.HasPrefix(s.view.Query, prefix) {
		return s.view.Query + "~"
	}
	return after
}

func (s *search) findKeys() (err error) {
	v := &s.view
	if key, err := s.keys.Get(s.c.Context(), s.c.account, v.Query); !errors.Is(err, apikeys.ErrNotFound) {
		v.KeysAfter, v.Keys = done, []keyView{s.viewKey(&key)}
		return err
	}
	v.KeysAfter, err = s.each("keys", func(after string) (string, bool, error) {
		page, err := s.keys.List(s.c.Context(), s.c.account, apikeys.Page{After: s.newest(after, keyPrefix), Limit: searchedAtOnce})
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
	if webhook, err := s.webhooks.Get(s.c.Context(), s.c.account, v.Query); !errors.Is(err, webhooks.ErrNotFound) {
		v.HooksAfter, v.Webhooks = done, []webhookView{s.viewWebhook(&webhook)}
		return err
	}
	v.HooksAfter, err = s.each("webhooks", func(after string) (string, bool, error) {
		page, err := s.webhooks.List(s.c.Context(), s.c.account, webhooks.Page{After: s.newest(after, webhookPrefix), Limit: searchedAtOnce})
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

// findPast finds keys and webhooks that were deleted, as they were called then, and those that were
// called so before a change: once each, and not those that are called so now.
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
		page, err := s.notices.List(s.c.Context(), s.c.account, notices.Query{
			Actions: []notices.Action{notices.KeyDeleted, notices.WebhookDeleted, notices.KeyChanged, notices.WebhookChanged}, After: after, Limit: searchedAtOnce,
		})
		for i := range page.Notices {
			n := &page.Notices[i]
			deleted := n.Action == notices.KeyDeleted || n.Action == notices.WebhookDeleted
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

// findEvents finds the event of that id; or those whose ids begin so, if it could be the
// beginning of an id that the service gives.
func (s *search) findEvents() (err error) {
	v := &s.view
	v.EventsAfter = done
	found, err := s.findEvent(v.Query)
	if err != nil || found || !strings.HasPrefix(v.Query, eventPrefix) {
		return err
	}
	v.EventsAfter, err = s.each("events", func(after string) (string, bool, error) {
		page, err := s.webhooks.Events(s.c.Context(), s.c.account, webhooks.EventQuery{After: after, Limit: searchedAtOnce})
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
				shown, err := s.webhooks.Events(s.c.Context(), s.c.account, webhooks.EventQuery{After: after, Limit: i + 1})
				return shown.Next, true, err // where the list goes on after this one
			}
		}
		return page.Next, len(v.Deliveries)+len(v.Events) >= maxFound, nil
	})
	return err
}

// findEvent adds the deliveries of an event, and reports whether there is the event.
func (s *search) findEvent(eventID string) (found bool, err error) {
	deliveries, err := s.webhooks.EventDeliveries(s.c.Context(), s.c.account, eventID)
	if err != nil {
		return false, unless(err, webhooks.ErrNotFound)
	}
	s.view.Deliveries = append(s.view.Deliveries, s.viewDeliveries(deliveries)...)
	if len(deliveries) > 0 {
		return true, nil
	}
	event, err := s.webhooks.Event(s.c.Context(), s.c.account, eventID)
	if err != nil {
		return false, unless(err, webhooks.ErrNotFound)
	}
	s.view.Events = append(s.view.Events, foundEvent{event.ID, s.viewEvent(event.Type).Text, s.when(event.Timestamp)})
	return true, nil
}

// unless returns err unless it is the other.
func unless(err, other error) error {
	if errors.Is(err, other) {
		return nil
	}
	return err
}
