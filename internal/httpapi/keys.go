package httpapi

import (
	"fmt"
	"strings"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/id"
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

// A keyReadView is an API key as it is read later. The value is there only in the
// answer that rotates the key.
type keyReadView struct {
	keyView
	LastUsedAt timestamp     `json:"lastUsedAt"`
	Previous   *previousView `json:"previous"`
}

// A previousView tells of the value before the last rotation, while it is live.
type previousView struct {
	ExpiresAt  timestamp `json:"expiresAt"`
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
	view := keyReadView{viewKey(key), timestamp(key.LastUsedAt), nil}
	if !key.Previous.IsZero() {
		view.Previous = &previousView{timestamp(key.PreviousExpiresAt), timestamp(key.PreviousUsedAt)}
	}
	return view
}

// tagKey returns the key's entity tag: of its name, and of its value, with which
// goes all that a rotation changes.
func tagKey(key apikeys.Key) (string, error) {
	return etag(struct {
		ID, Name string
		Value    [32]byte
	}{key.ID, key.Name, key.Hash.Sum})
}

// showKey answers with a key, and its new value if it has got one.
func showKey(key apikeys.Key, value string) (answer, error) {
	tag, err := tagKey(key)
	if err != nil {
		return answer{}, err
	}
	view := viewKeyRead(key)
	view.Key = value
	return tagged(tag, view)
}

func (a *api) createKey(c *call) (answer, error) {
	params, err := decodeKey(c.data)
	if err != nil {
		return answer{}, err
	}
	if params.IdempotencyKey, err = c.idempotencyKey(); err != nil {
		return answer{}, err
	}
	if params, err = a.keys.Check(params); err != nil {
		return answer{}, err
	}
	if err := a.permit(c, &auth.Target{Scopes: params.Scopes, ExpiresAt: params.ExpiresAt}); err != nil {
		return answer{}, err
	}
	params.By = c.by()
	key, token, err := a.keys.Create(c.Context(), c.caller.Account, params)
	if err != nil {
		return answer{}, err
	}
	value := token.Reveal()
	if value == "" { // made by an earlier request
		return showKey(key, "")
	}
	view := viewKey(key)
	view.Key = value
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
	return showKey(key, "")
}

func (a *api) updateKey(c *call) (answer, error) {
	var params apikeys.UpdateParams
	if err := decodeObject(c.data, changing("name", &params.Name, asIs)); err != nil {
		return answer{}, err
	}
	if err := params.Check(); err != nil {
		return answer{}, err
	}
	var err error
	if params.If, err = c.mayChangeKey(); err != nil {
		return answer{}, err
	}
	if err := a.permitKey(c); err != nil {
		return answer{}, err
	}
	key, err := a.keys.Update(c.Context(), c.caller.Account, c.id, params)
	if err != nil {
		return answer{}, err
	}
	return showKey(key, "")
}

func (a *api) rotateKey(c *call) (answer, error) {
	params := apikeys.RotateParams{Grace: defaultGrace}
	if err := decodeObject(c.data, optional("graceSeconds", &params.Grace, parseGrace)); err != nil {
		return answer{}, err
	}
	var err error
	if params.If, err = c.mayChangeKey(); err != nil {
		return answer{}, err
	}
	if err := a.permitKey(c); err != nil {
		return answer{}, err
	}
	key, token, err := a.keys.Rotate(c.Context(), c.caller.Account, c.id, params)
	if err != nil {
		return answer{}, err
	}
	return showKey(key, token.Reveal())
}

func (a *api) deleteKey(c *call) (answer, error) {
	matches, err := c.mayChangeKey()
	if err != nil {
		return answer{}, err
	}
	if !id.Valid(id.Key, c.id) {
		return answer{}, apikeys.ErrNotFound
	}
	if err := a.recheck(c); err != nil {
		return answer{}, err
	}
	if err := a.permitKey(c); err != nil {
		return answer{}, err
	}
	if err := a.keys.DeleteIf(c.Context(), c.caller.Account, c.id, matches); err != nil {
		return answer{}, err
	}
	return noContent(), nil
}

// permitKey asks whether the caller may do what the route is for to the key that
// the path names. What it asks about does not change as long as the key is there.
func (a *api) permitKey(c *call) error {
	key, err := a.findKey(c)
	if err != nil {
		return err
	}
	return a.permit(c, &auth.Target{ID: key.ID, Scopes: key.Scopes, ExpiresAt: key.ExpiresAt})
}

// mayChangeKey returns the condition of a change or deletion: the request's If-Match
// holds and, if it is the caller's own key, its value is still what it was when it was
// verified. Otherwise a value that is replaced at this moment could still rotate.
func (c *call) mayChangeKey() (apikeys.Condition, error) {
	match, err := c.ifMatch()
	if err != nil {
		return nil, err
	}
	return func(key apikeys.Key) error {
		if key.ID == c.caller.KeyID && !c.by().Matches(key.Hash.Sum, key.Previous.Sum) {
			return auth.ErrCredentialChanged
		}
		tag, err := tagKey(key)
		if err != nil {
			return err
		}
		return match.check(tag)
	}, nil
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
		return scopes.Set{}, invalid("scopes", fmt.Sprintf("%s; %v", scopesRule, err))
	}
	return set, nil
}

var scopesRule = "must be one or more of " + strings.Join(scopes.All().Names(), ", ")
