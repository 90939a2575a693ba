package dashboard

import (
	"net/http"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/internal/fields"
	"github.com/storageapi/storageapi/internal/listed"
)

// pageSize is the number of keys or deliveries on a page.
const pageSize = 50

// The list marks keys that expire within soon, and keys that have existed for at least idle and
// were never used.
const (
	soon = 14 * 24 * time.Hour
	idle = 30 * 24 * time.Hour
)

// A keyView is the template data for a key.
type keyView struct {
	ID, Name  string
	Scopes    []scopeView
	Unknown   []string // scopes of the key that are no longer declared
	AllScopes bool
	Resources []string // the resources that the key is limited to; empty means no limit
	Created   *when
	LastUsed  *when
	Expires   *when
	Expired   bool
	Soon      bool // expires within soon
	Idle      bool // never used, and at least idle old
	Paused    bool
	Labels    map[string]string
	Version   string
	Hint      string // hint of the key's value; empty if unknown
	CreatedBy *actorView
	UsedFrom  string   // network of the last use; empty if unknown
	Networks  []string // the networks that the key is limited to
	RateLimit uint64   // requests per minute; 0 means no limit of its own

	// The previous value, while its grace period after a rotation lasts.
	PreviousHint  string
	PreviousUntil *when
	PreviousUsed  *when
}

// An actorView is the template data for an actor.
type actorView struct {
	KeyID string // set if the actor is a key
	Name  string // set if the actor is a person or the service
}

// viewActor returns the template data for an actor, or nil if the actor is unknown.
func viewActor(a audit.Actor) *actorView {
	switch a.Kind {
	case "":
		return nil
	case audit.ActorKey:
		return &actorView{KeyID: a.ID}
	case audit.ActorPerson:
		return &actorView{Name: a.ID}
	}
	return &actorView{Name: "The service"}
}

// A scopeView is the template data for a scope.
type scopeView struct{ Name, Description string }

func (p *pages) viewKey(key *apikeys.Key) keyView {
	left := key.ExpiresAt.Sub(p.now())
	view := keyView{
		ID: key.ID, Name: key.Name,
		Unknown:   key.Scopes.Unknown(),
		AllScopes: key.Scopes.Covers(p.keys.Scopes().All()),
		Resources: key.Resources.Names(),
		Created:   p.when(key.CreatedAt),
		LastUsed:  p.when(key.LastUsedAt),
		Expires:   p.when(key.ExpiresAt),
		Expired:   !key.ExpiresAt.IsZero() && left <= 0,
		Soon:      !key.ExpiresAt.IsZero() && left > 0 && left <= soon,
		Idle:      key.LastUsedAt.IsZero() && p.now().Sub(key.CreatedAt) >= idle,
		Paused:    key.Disabled,
		Labels:    key.Labels.Map(),
		Version:   keyVersion(key),
		Hint:      key.Hint,
		CreatedBy: viewActor(key.CreatedBy),
		Networks:  key.AllowedNetworks.Names(),
		RateLimit: key.RateLimit,
	}
	if from := key.LastUsedFrom(); from.IsValid() {
		view.UsedFrom = from.String()
	}
	for s := range key.Scopes.All() {
		view.Scopes = append(view.Scopes, scopeView{s.String(), p.keys.Scopes().Description(s)})
	}
	if !key.Previous.IsZero() {
		view.PreviousHint = key.PreviousHint
		view.PreviousUntil, view.PreviousUsed = p.when(key.PreviousExpiresAt), p.when(key.PreviousUsedAt)
	}
	return view
}

// keyVersion returns a version that changes whenever the key gets a new value.
func keyVersion(key *apikeys.Key) string {
	sum := fields.Sum((*listed.Key)(key), fields.Value)
	return version("key", key.ID, string(sum[:]))
}

// keyState returns a version that changes whenever a setting of the key changes.
func keyState(key *apikeys.Key) string {
	sum := fields.Sum((*listed.Key)(key), fields.Setting)
	return version("settings", key.ID, string(sum[:]))
}

// A keyListView is the template data for the list of keys.
type keyListView struct {
	Keys   []keyView
	Filter keyFilterView
	pager
}

func (p *pages) listKeys(c *call) (response, error) {
	query, shown := p.keyFilter(c)
	query.After, query.Limit = c.after(), pageSize
	view := keyListView{Filter: shown}
	a := response{page: "keys", title: "API keys", tab: "keys"}
	page, err := p.keys.List(c.Context(), c.account, query)
	if err := shown.Form.refuse("name", err); err != nil {
		return response{}, err
	}
	if len(shown.Form.Errors) > 0 {
		a.status = http.StatusUnprocessableEntity
	}
	var rest apikeys.KeyPage
	if query.After, query.Limit = page.Next, countedAtMost; page.Next != "" {
		if rest, err = p.keys.List(c.Context(), c.account, query); err != nil {
			return response{}, err
		}
	}
	view.pager = c.pager("api-keys", shown.Query, len(page.Keys), page.Next, later(len(rest.Keys), rest.Next), "key")
	for i := range page.Keys {
		view.Keys = append(view.Keys, p.viewKey(&page.Keys[i]))
	}
	a.data = view
	return a, nil
}

// A keyPageView is the template data for the page of a key.
type keyPageView struct {
	Key  keyView
	Form form // the form that renames the key
	Use  keyUseView
}

func (p *pages) showKey(_ *call, key *apikeys.Key) (response, error) {
	f := newForm(map[string][]string{"name": {key.Name}})
	return p.keyPage(key, f), nil
}

func (p *pages) keyPage(key *apikeys.Key, f form) response {
	return response{page: "key", title: key.Name, tab: "keys", data: keyPageView{p.viewKey(key), f, p.viewUse(key)}}
}

// An areaView is an area of the service with its scopes.
type areaView struct {
	Name   string
	Scopes []scopeView
}

// areas returns the scopes by area, in the order of docs/spec.md, section 5. The host's own scopes
// follow in the order of their declaration.
func (p *pages) areas() (list []areaView) {
	vocabulary := p.keys.Scopes()
	at := make(map[string]int)
	for s := range vocabulary.All().All() {
		i, ok := at[s.Area()]
		if !ok {
			i, at[s.Area()] = len(list), len(list)
			list = append(list, areaView{Name: strings.ToUpper(s.Area()[:1]) + s.Area()[1:]})
		}
		list[i].Scopes = append(list[i].Scopes, scopeView{s.String(), vocabulary.Description(s)})
	}
	return list
}
