package httpapi

import (
	"fmt"
	"strings"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/internal/invalid"
	"github.com/storageapi/storageapi/scopes"
)

// A keyView is an API key as SPEC 2.1 shows it. The value is there only in the
// answer that creates the key.
type keyView struct {
	ID        string     `json:"id"`
	Key       string     `json:"key,omitempty"`
	Name      string     `json:"name"`
	Scopes    scopes.Set `json:"scopes"`
	ExpiresAt timestamp  `json:"expiresAt"`
	CreatedAt timestamp  `json:"createdAt"`
}

// A keyReadView is an API key as it is read later.
type keyReadView struct {
	keyView
	LastUsedAt timestamp `json:"lastUsedAt"`
}

func viewKey(key apikeys.Key) keyView {
	return keyView{
		ID:        key.ID,
		Name:      key.Name,
		Scopes:    key.Scopes,
		ExpiresAt: timestamp(key.ExpiresAt),
		CreatedAt: timestamp(key.CreatedAt),
	}
}

func viewKeyRead(key apikeys.Key) keyReadView {
	return keyReadView{viewKey(key), timestamp(key.LastUsedAt)}
}

func (a *api) createKey(c *call) (answer, error) {
	data, err := c.body()
	if err != nil {
		return answer{}, err
	}
	params, err := decodeKey(data)
	if err != nil {
		return answer{}, err
	}
	if params, err = a.keys.Check(params); err != nil {
		return answer{}, err
	}
	if err := a.permit(c, &auth.Target{Scopes: params.Scopes, ExpiresAt: params.ExpiresAt}); err != nil {
		return answer{}, err
	}
	key, token, err := a.keys.Create(c.Context(), c.caller.Account, params)
	if err != nil {
		return answer{}, err
	}
	view := viewKey(key)
	view.Key = token.Reveal()
	return created(c, key.ID, view)
}

func (a *api) listKeys(c *call) (answer, error) {
	fetch := func(after string, limit int) ([]apikeys.Key, error) {
		return a.keys.List(c.Context(), c.caller.Account, apikeys.Page{After: after, Limit: limit})
	}
	return list(c, id.Key, fetch, func(key apikeys.Key) (string, any) { return key.ID, viewKeyRead(key) })
}

func (a *api) getKey(c *call) (answer, error) {
	key, err := a.findKey(c)
	if err != nil {
		return answer{}, err
	}
	return ok(viewKeyRead(key))
}

func (a *api) deleteKey(c *call) (answer, error) {
	key, err := a.findKey(c)
	if err != nil {
		return answer{}, err
	}
	if err := a.permit(c, &auth.Target{ID: key.ID, Scopes: key.Scopes, ExpiresAt: key.ExpiresAt}); err != nil {
		return answer{}, err
	}
	if err := a.keys.Delete(c.Context(), c.caller.Account, key.ID); err != nil {
		return answer{}, err
	}
	return noContent(), nil
}

// findKey returns the caller's key that the path names. What is no id is unknown.
func (a *api) findKey(c *call) (apikeys.Key, error) {
	if !id.Valid(id.Key, c.id) {
		return apikeys.Key{}, apikeys.ErrNotFound
	}
	return a.keys.Get(c.Context(), c.caller.Account, c.id)
}

// decodeKey decodes the body that creates a key (SPEC 4.1).
func decodeKey(data []byte) (apikeys.CreateParams, error) {
	var params apikeys.CreateParams
	err := decodeObject(data,
		required("name", &params.Name, asIs),
		required("scopes", &params.Scopes, parseScopes),
		optional("expiresAt", &params.ExpiresAt, parseExpiry),
	)
	return params, err
}

func parseScopes(names []string) (scopes.Set, error) {
	set, err := scopes.ParseSet(names)
	if err != nil {
		return scopes.Set{}, invalid.Field("scopes", fmt.Sprintf("%s; %v", scopesRule, err))
	}
	return set, nil
}

var scopesRule = "must be one or more of " + strings.Join(scopes.All().Names(), ", ")
