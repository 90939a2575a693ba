package dashboard

import (
	"net/netip"
	"time"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/observe"
)

// A scope counts as used if the key has used it within usedWithin.
const usedWithin = 90 * 24 * time.Hour

// A keyUseView is the template data for the scopes and networks that a key has used, and for its
// refused requests.
type keyUseView struct {
	Scopes   int // scopes of the key
	Used     int // scopes that the key has used within usedWithin
	Networks []apikeys.NetworkUse
	Refusals []refusalView
}

// A refusalView is the template data for a refused request.
type refusalView struct {
	At             *when
	Reason         string
	Route, Missing string
	Network        netip.Prefix
}

// refusalReasons are the outcomes of requests whose key is known.
var refusalReasons = map[observe.Outcome]string{
	observe.Expired:      "The key had expired",
	observe.Replaced:     "The value had been replaced",
	observe.Disabled:     "The key was paused",
	observe.WrongNetwork: "Not from an allowed network",
	observe.ScopeMissing: "Not permitted",
	observe.Limited:      "Too many requests",
}

func (p *pages) viewUse(key *apikeys.Key) keyUseView {
	view := keyUseView{Scopes: key.Scopes.Len(), Used: len(p.usedScopes(key)), Networks: key.NetworksUsed()}
	for _, r := range key.Refusals() {
		reason := refusalReasons[r.Outcome]
		if reason == "" {
			reason = string(r.Outcome)
		}
		view.Refusals = append(view.Refusals, refusalView{p.when(r.At), reason, r.Route, r.Missing, r.Network})
	}
	return view
}

// usedScopes returns the names of the scopes that a key has used recently.
func (p *pages) usedScopes(key *apikeys.Key) (names []string) {
	for _, use := range key.ScopesUsed() {
		if p.now().Sub(use.LastUsedOn.Time) <= usedWithin {
			names = append(names, use.Scope.String())
		}
	}
	return names
}
