package dashboard

import (
	"errors"
	"net/http"
	"strings"

	"github.com/storageapi/storageapi/apikeys"
)

func (p *pages) renameKey(c *call, key *apikeys.Key) (response, error) {
	f := newForm(c.PostForm)
	name := strings.TrimSpace(f.Values.Get("name"))
	_, err := p.keys.Update(c.Context(), c.account, key.ID, apikeys.UpdateParams{Name: &name})
	if err := f.refuse("name", err); err != nil {
		return response{}, err
	}
	if len(f.Errors) == 0 {
		return goTo("api-keys/"+key.ID, "renamed"), nil
	}
	a := p.keyPage(key, f)
	a.status = http.StatusUnprocessableEntity
	return a, nil
}

// A rotationView is the template data for the form that rotates a key or a webhook's secret.
type rotationView struct {
	Key     keyView
	Webhook webhookView
	Form    form
}

func (p *pages) askRotateKey(_ *call, key *apikeys.Key) (response, error) {
	return p.rotationOfKey(key, newForm(map[string][]string{"grace": {"24h"}})), nil
}

func (p *pages) rotationOfKey(key *apikeys.Key, f form) response {
	return response{page: "key-rotate", title: "Rotate " + key.Name, tab: "keys",
		data: rotationView{Key: p.viewKey(key), Form: f}}
}

func (p *pages) rotateKey(c *call, key *apikeys.Key) (response, error) {
	f := newForm(c.PostForm)
	grace, ok := f.grace()
	if !ok {
		a := p.rotationOfKey(key, f)
		a.status = http.StatusUnprocessableEntity
		return a, nil
	}
	version := f.Values.Get("version")
	rotated, token, err := p.keys.Rotate(c.Context(), c.account, key.ID, apikeys.RotateParams{Grace: grace, If: func(before, _ apikeys.Key) error {
		if keyVersion(&before) != version {
			return errChanged
		}
		return nil
	}})
	if errors.Is(err, errChanged) { // perhaps the browser sent the same form before
		if rotated, err = p.keys.Get(c.Context(), c.account, key.ID); err == nil {
			a := p.keyMade(c, &rotated, apikeys.Token{}, true)
			a.status = http.StatusConflict
			return a, nil
		}
	}
	if err != nil {
		return response{}, err
	}
	return p.keyMade(c, &rotated, token, true), nil
}

func (p *pages) askRevokeKey(_ *call, key *apikeys.Key) (response, error) {
	return response{page: "key-revoke", title: "Revoke " + key.Name, tab: "keys", data: keyPageView{Key: p.viewKey(key)}}, nil
}

func (p *pages) revokeKey(c *call) (response, error) {
	if err := p.keys.Delete(c.Context(), c.account, c.PathValue("id"), apikeys.DeleteParams{}); err != nil {
		return response{}, err
	}
	return goTo("api-keys", "revoked"), nil
}
