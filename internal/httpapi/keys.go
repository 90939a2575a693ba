package httpapi

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/listed"
	"github.com/storageapi/storageapi/scopes"
)

// A keyView is an API key with its value, in the response to its creation (docs/spec.md, section
// 2.1).
type keyView struct {
	ID        string     `json:"id"`
	Key       string     `json:"key,omitempty"`
	Name      string     `json:"name"`
	Scopes    scopes.Set `json:"scopes"`
	Resources []string   `json:"resources,omitempty"`
	ExpiresAt timestamp  `json:"expiresAt"`
	CreatedAt timestamp  `json:"createdAt"`

	Labels map[string]string `json:"labels,omitempty"`
}

// A keyReadView is an API key in all responses except to its creation. It has the value only in the
// response to a rotation.
type keyReadView struct {
	keyView
	Enabled bool `json:"enabled"`

	Labels        map[string]string `json:"labels"` // present even if the key has no labels
	Hint          *string           `json:"hint"`
	CreatedBy     *creatorView      `json:"createdBy"`
	LastUsedAt    timestamp         `json:"lastUsedAt"`
	Previous      *previousView     `json:"previous"`
	UnknownScopes []string          `json:"unknownScopes,omitempty"` // scopes of the key that are no longer declared
	limitsView
}

// A limitsView has the limits of a key, and the scopes and networks that it has used.
type limitsView struct {
	AllowedNetworks []string             `json:"allowedNetworks,omitempty"`
	RateLimit       uint64               `json:"rateLimit,omitempty"`
	LastUsedFrom    netip.Prefix         `json:"lastUsedFrom,omitzero"`
	ScopesUsed      []apikeys.ScopeUse   `json:"scopesUsed,omitempty"`
	NetworksUsed    []apikeys.NetworkUse `json:"networksUsed,omitempty"`
}

func viewLimits(key *apikeys.Key) limitsView {
	return limitsView{key.AllowedNetworks.Names(), key.RateLimit, key.LastUsedFrom(), key.ScopesUsed(), key.NetworksUsed()}
}

// A previousView describes the value before the last rotation. Responses contain it while that
// value is valid.
type previousView struct {
	Hint       *string   `json:"hint"`
	ExpiresAt  timestamp `json:"expiresAt"`
	LastUsedAt timestamp `json:"lastUsedAt"`
}

func viewKey(key apikeys.Key) keyView {
	return keyView{
		ID:        key.ID,
		Name:      key.Name,
		Scopes:    key.Scopes,
		Resources: key.Resources.Names(),
		ExpiresAt: timestamp(key.ExpiresAt),
		CreatedAt: timestamp(key.CreatedAt),
		Labels:    key.Labels.Map(),
	}
}

func viewKeyRead(key apikeys.Key) keyReadView {
	view := keyReadView{viewKey(key), !key.Disabled, key.Labels.Map(), orNull(key.Hint), viewCreator(key.CreatedBy), timestamp(key.LastUsedAt), nil, key.Scopes.Unknown(), viewLimits(&key)}
	if !key.Previous.IsZero() {
		view.Previous = &previousView{orNull(key.PreviousHint), timestamp(key.PreviousExpiresAt), timestamp(key.PreviousUsedAt)}
	}
	return view
}

// showKey answers with a key, and with its new value if value is not empty.
func (a *api) showKey(c *call, key apikeys.Key, value string) (response, error) {
	if err := a.hideCreator(c, &key); err != nil {
		return response{}, err
	}
	view := viewKeyRead(key)
	view.Key = value
	return tagged(etag((*listed.Key)(&key)), view)
}

func (a *api) createKey(c *call) (response, error) {
	params := apikeys.CreateParams{By: a.credential(c), If: a.mayChangeKey(c)}
	wrong := c.bind(keyFields(a.keys.Scopes(), &params), idempotencyKey(&params.IdempotencyKey))
	if wrong != nil { // Create only validates the other fields
		params.If = func(_, _ apikeys.Key) error { return wrong }
	}
	key, token, err := a.keys.Create(c.Context(), c.caller.Account, params)
	if err := alsoInvalid(wrong, err); err != nil {
		return response{}, err
	}
	value := token.Reveal()
	if value == "" { // an earlier request created the key
		return a.showKey(c, key, "")
	}
	view := viewKey(key)
	view.Key = value
	return created(c, key.ID, view)
}

func (a *api) getKey(c *call) (response, error) {
	key, err := a.readKey(c)
	if err != nil {
		return response{}, err
	}
	return a.showKey(c, key, "")
}

// readKey returns the key in the path, if it exists for the caller.
func (a *api) readKey(c *call) (apikeys.Key, error) {
	key, err := a.keys.Get(c.Context(), c.caller.Account, c.keyID())
	if err == nil {
		err = c.sees(key.Resources)
	}
	return key, err
}

// A refusalView describes a refused request.
type refusalView struct {
	At timestamp `json:"at"` // replaces RefusedRequest.At in the JSON
	auth.RefusedRequest
}

func (a *api) listRefusals(c *call) (response, error) {
	key, err := a.readKey(c)
	if err != nil {
		return response{}, err
	}
	views := []refusalView{}
	for _, r := range key.Refusals() {
		views = append(views, refusalView{timestamp(r.At), r})
	}
	return ok(map[string][]refusalView{"data": views})
}

// A selfView describes the key of the request and the value that the request carries.
type selfView struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Hint      *string    `json:"hint"`
	Scopes    scopes.Set `json:"scopes"`
	Resources []string   `json:"resources,omitempty"`
	ExpiresAt timestamp  `json:"expiresAt"`
	Replaced  bool       `json:"replaced"`
}

// getSelf returns the caller's own key, which needs no scope.
func (a *api) getSelf(c *call) (response, error) {
	value, err := a.keys.Lookup(c.Context(), a.guard.Token(c.Request))
	switch {
	case errors.Is(err, apierr.ErrNotFound), err == nil && !value.Live: // the value changed after it was verified
		return response{}, auth.ErrUnauthorized
	case err != nil:
		return response{}, err
	}
	return ok(selfView{
		value.Key.ID, value.Key.Name, orNull(value.Hint), value.Key.Scopes, value.Key.Resources.Names(), timestamp(value.ExpiresAt), value.Replaced,
	})
}

// revokeSelf revokes the key value that the request carries.
func (a *api) revokeSelf(c *call) (response, error) {
	_, err := a.keys.RevokeValue(c.Context(), a.guard.Token(c.Request))
	if errors.Is(err, apierr.ErrNotFound) { // the value changed after it was verified
		return response{}, auth.ErrUnauthorized
	}
	if err != nil {
		return response{}, err
	}
	return noContent(), nil
}

func (a *api) updateKey(c *call) (response, error) {
	var params apikeys.UpdateParams
	wrong := c.bind(keyPatch(&params), a.ifMatchKey(&params.If))
	if wrong != nil { // Update only validates the other fields
		params.If = func(_, _ apikeys.Key) error { return wrong }
	}
	key, err := a.keys.Update(c.Context(), c.caller.Account, c.keyID(), params)
	if err := alsoInvalid(wrong, err); err != nil {
		return response{}, err
	}
	return a.showKey(c, key, "")
}

func (a *api) rotateKey(c *call) (response, error) {
	params := apikeys.RotateParams{Grace: defaultGrace}
	if err := c.bind([]field{optional("graceSeconds", &params.Grace, parseGrace)}, a.ifMatchKey(&params.If)); err != nil {
		return response{}, err
	}
	key, token, err := a.keys.Rotate(c.Context(), c.caller.Account, c.keyID(), params)
	if err != nil {
		return response{}, err
	}
	return a.showKey(c, key, token.Reveal())
}

func (a *api) deleteKey(c *call) (response, error) {
	var params apikeys.DeleteParams
	if err := c.bind(nil, a.ifMatchKey(&params.If)); err != nil {
		return response{}, err
	}
	if err := a.keys.Delete(c.Context(), c.caller.Account, c.keyID(), params); err != nil {
		return response{}, err
	}
	return noContent(), nil
}

// keyFields returns the body fields of a key creation.
func keyFields(known *scopes.Vocabulary, params *apikeys.CreateParams) []field {
	return []field{
		required("name", &params.Name, identity),
		required("scopes", &params.Scopes, parseScopes(known)),
		optional("resources", &params.Resources, identity),
		optional("expiresAt", &params.ExpiresAt, parseExpiry),
		patchValue("labels", &params.Labels, parseLabels),
		optional("allowedNetworks", &params.AllowedNetworks, parseNetworks),
		optional("rateLimit", &params.RateLimit, parseRateLimit),
	}
}

// parseNetworks rejects an empty list, which could be meant to allow nothing.
func parseNetworks(list []string) ([]string, error) {
	if len(list) == 0 {
		return nil, invalid("allowedNetworks", "must not be empty; leave it out for a key without networks")
	}
	return list, nil
}

func parseRateLimit(perMinute int64) (uint64, error) {
	if perMinute < 1 {
		return 0, invalid("rateLimit", "must be at least 1 request per minute")
	}
	return uint64(perMinute), nil
}

// keyPatch returns the body fields of a key change.
func keyPatch(params *apikeys.UpdateParams) []field {
	return []field{
		patch("name", &params.Name, identity),
		patch("enabled", &params.Enabled, identity),
		nullablePatch("expiresAt", &params.ExpiresAt, parseExpiry),
		patchValue("labels", &params.Labels, identity[map[string]*string]),
	}
}

// parseLabels returns the labels of a new key.
func parseLabels(values map[string]*string) (map[string]string, error) {
	labels := make(map[string]string)
	for name, value := range values {
		if value != nil {
			labels[name] = *value
		}
	}
	return labels, nil
}

func parseScopes(known *scopes.Vocabulary) func(names []string) (scopes.Set, error) {
	return func(names []string) (scopes.Set, error) {
		set, err := known.ParseSet(names)
		if err != nil {
			return scopes.Set{}, invalid("scopes", fmt.Sprintf("must be one or more of %s; %v", strings.Join(known.All().Names(), ", "), err))
		}
		return set, nil
	}
}
