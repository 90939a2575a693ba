package dashboard

import (
	"errors"
	"iter"
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

// Limits of a search in each list.
const (
	maxSearched    = 1000 // items, newest first
	maxFound       = 20
	searchedPages  = 10 // maximum number of pages of the audit log
	searchedAtOnce = 100
)

// A searchView is the template data for the results of a search.
type searchView struct {
	Query      string
	Keys       []keyView
	Webhooks   []webhookView
	Deliveries []deliveryView
	Events     []foundEvent // without deliveries
	Types      []eventView
	Deleted    []pastView // audit entries for deleted keys and webhooks that match
	Renamed    []pastView // audit entries for keys and webhooks whose earlier name or URL matches
	More       bool       // a limit ended the search
}

// count returns the number of results.
func (v *searchView) count() int {
	return len(v.Keys) + len(v.Webhooks) + len(v.Deliveries) + len(v.Events) + len(v.Types) + len(v.Deleted) + len(v.Renamed)
}

type foundEvent struct {
	ID, Text  string
	Published *when
}

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
	text string // the query in lower case
	view searchView
}

// search handles the search form. It redirects to a URL with the query, so that users can bookmark
// the search, unless the query could contain a secret.
func (p *pages) search(c *call) (response, error) {
	text := strings.TrimSpace(c.PostForm.Get("q"))
	if hint := hintIn(text); hint != "" {
		text = hint
	}
	if !maybeSecret(text) {
		return goTo("search?q="+url.QueryEscape(text), ""), nil
	}
	a, err := p.find(c, text)
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
	return p.find(c, text)
}

// find finds keys by ID, name and hint, webhooks by ID and URL, events by ID, and event types by
// name and description. If there is only one result, it redirects to the page of that result.
func (p *pages) find(c *call, query string) (response, error) {
	s := &search{pages: p, c: c, text: strings.ToLower(query), view: searchView{Query: query}}
	a := response{page: "search", title: "Search", query: query}
	if query == "" || !isText(query) || utf8.RuneCountInString(query) > maxQuery {
		a.data = s.view
		return a, nil
	}
	for _, part := range []struct {
		action auth.Action
		find   func() error
	}{{auth.ReadKeys, s.findKeys}, {auth.ReadWebhooks, s.findWebhooks}, {auth.ReadWebhooks, s.findEvent}, {auth.ReadEvents, s.findTypes}, {auth.ReadAudit, s.findPast}} {
		if p.permit(c.Request, part.action) != nil {
			continue
		}
		if err := part.find(); err != nil {
			return response{}, err
		}
	}
	if only := s.only(); only != "" {
		return goTo(only, ""), nil
	}
	a.data = s.view
	return a, nil
}

// only returns the page of the single result if the search is complete or the query is the result's
// ID. Otherwise it returns "".
func (s *search) only() string {
	v := &s.view
	all := !v.More
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

// scan calls matches with the items of a list until a limit is reached. matches adds an item to the
// view if the query selects it.
func scan[T any](v *searchView, list iter.Seq2[T, error], matches func(*T) bool) error {
	searched, found := 0, 0
	for item, err := range list {
		if err != nil {
			return err
		}
		if searched == maxSearched || found == maxFound {
			v.More = true
			return nil
		}
		searched++
		if matches(&item) {
			found++
		}
	}
	return nil
}

func (s *search) findKeys() error {
	v := &s.view
	if key, err := s.keys.Get(s.c.Context(), s.c.account, v.Query); !errors.Is(err, apierr.ErrNotFound) {
		v.Keys = []keyView{s.viewKey(&key)}
		return err
	}
	return scan(v, s.keys.All(s.c.Context(), s.c.account, apikeys.KeyQuery{}), func(key *apikeys.Key) bool {
		matches := strings.HasPrefix(key.ID, v.Query) || s.has(key.Name) || s.ends(key.Hint) || s.ends(key.PreviousHint)
		if matches {
			v.Keys = append(v.Keys, s.viewKey(key))
		}
		return matches
	})
}

func (s *search) findWebhooks() error {
	v := &s.view
	if webhook, err := s.webhooks.Get(s.c.Context(), s.c.account, v.Query); !errors.Is(err, apierr.ErrNotFound) {
		v.Webhooks = []webhookView{s.viewWebhook(&webhook)}
		return err
	}
	return scan(v, s.webhooks.All(s.c.Context(), s.c.account, webhooks.WebhookQuery{}), func(webhook *webhooks.Webhook) bool {
		matches := strings.HasPrefix(webhook.ID, v.Query) || s.has(webhook.URL)
		if matches {
			v.Webhooks = append(v.Webhooks, s.viewWebhook(webhook))
		}
		return matches
	})
}

// findPast finds deleted keys and webhooks by ID, last name and hint, and existing ones by an
// earlier name or URL. It reports each object once, and none that the search has found already.
func (s *search) findPast() error {
	v := &s.view
	found := make(map[string]bool)
	for _, key := range v.Keys {
		found[key.ID] = true
	}
	for _, webhook := range v.Webhooks {
		found[webhook.ID] = true
	}
	query := audit.Query{Actions: []audit.Action{audit.KeyDeleted, audit.WebhookDeleted, audit.KeyChanged, audit.WebhookChanged}, Limit: searchedAtOnce}
	for range searchedPages {
		page, err := s.entries.List(s.c.Context(), s.c.account, query)
		if err != nil {
			return err
		}
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
		if query.After = page.Next; page.Next == "" {
			return nil
		}
		if len(v.Deleted)+len(v.Renamed) >= maxFound {
			break
		}
	}
	v.More = true
	return nil
}

// findTypes finds declared event types by name and description.
func (s *search) findTypes() error {
	for _, t := range s.eventChoices(nil) {
		if s.has(t.Type) || s.has(t.Text) {
			s.view.Types = append(s.view.Types, t)
		}
	}
	return nil
}

// findEvent finds the deliveries of the event whose ID is the query, or the event itself if it has
// no deliveries.
func (s *search) findEvent() error {
	deliveries, err := s.webhooks.EventDeliveries(s.c.Context(), s.c.account, s.view.Query)
	if err != nil {
		return unless(err, apierr.ErrNotFound)
	}
	s.view.Deliveries = s.viewDeliveries(deliveries)
	if len(deliveries) > 0 {
		return nil
	}
	event, err := s.webhooks.Event(s.c.Context(), s.c.account, s.view.Query)
	if err == nil {
		s.view.Events = []foundEvent{{event.ID, s.viewEvent(event.Type).Text, s.when(event.Timestamp)}}
	}
	return unless(err, apierr.ErrNotFound)
}

// unless returns err, or nil if err wraps other.
func unless(err, other error) error {
	if errors.Is(err, other) {
		return nil
	}
	return err
}
