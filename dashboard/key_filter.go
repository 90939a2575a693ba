package dashboard

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/scopes"
)

// A keyFilterView is the template data for the filters of the list of keys.
type keyFilterView struct {
	Form   form
	Areas  []areaView
	Unused []choice
	Expiry []choice
	Query  string // the filters, encoded, for links; empty if there are none
}

// unused lists the choices for how many days a key must have been unused.
var unused = []choice{
	{"30", "30 days"},
	{"90", "90 days"},
	{"365", "A year"},
}

// expiring lists the choices for the number of days within which a key expires.
var expiring = []choice{
	{"0", "Expired"},
	{"14", "Expired or within 14 days"},
	{"90", "Expired or within 90 days"},
}

// filterKeys handles the filter form. If the user has pasted the value of a key as the name, it
// runs a search instead, because the value must not appear in a URL.
func (p *pages) filterKeys(c *call) (response, error) {
	if name := c.PostForm.Get("name"); hintIn(name) != "" || maybeSecret(name) {
		c.PostForm = url.Values{"q": {name}}
		return p.search(c)
	}
	filters := make(url.Values)
	for _, name := range []string{"name", "scope", "unused", "expires"} {
		if value := c.PostForm.Get(name); value != "" {
			filters.Set(name, value)
		}
	}
	return goTo("api-keys?"+filters.Encode(), ""), nil
}

// keyFilter returns the filter in the request's URL, ignoring invalid values.
func (p *pages) keyFilter(c *call) (filter apikeys.KeyQuery, view keyFilterView) {
	f := newForm(c.URL.Query())
	view = keyFilterView{Form: f, Areas: p.areas(), Unused: unused, Expiry: expiring}
	filters := make(url.Values)
	if name := strings.TrimSpace(f.Values.Get("name")); name != "" {
		filter.Name = name
		filters.Set("name", name)
	}
	if name := f.Values.Get("scope"); p.keys.Scopes().Has(scopes.Scope(name)) {
		filter.Scopes = scopes.Of(scopes.Scope(name))
		filters.Set("scope", name)
	}
	days := func(name string, choices []choice) (d time.Duration, chosen bool) {
		value := f.Values.Get(name)
		if !slices.ContainsFunc(choices, func(c choice) bool { return c.Value == value }) {
			return 0, false
		}
		filters.Set(name, value)
		n, _ := strconv.Atoi(value)
		return time.Duration(n) * 24 * time.Hour, true
	}
	if d, chosen := days("unused", unused); chosen {
		filter.UnusedSince = p.now().Add(-d)
	}
	if d, chosen := days("expires", expiring); chosen {
		filter.ExpiresBefore = p.now().Add(d)
	}
	view.Query = filters.Encode()
	return filter, view
}
