package dashboard

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
)

func (p *pages) askPauseKey(_ *call, key *apikeys.Key) (response, error) {
	return response{page: "key-pause", title: "Pause " + key.Name, tab: "keys", data: keyPageView{Key: p.viewKey(key)}}, nil
}

func (p *pages) turnKey(c *call) (response, error) {
	id, to := c.PathValue("id"), c.PostForm.Get("to")
	on := to == "resumed"
	if !on && to != "paused" {
		return response{}, badForm{errors.New("the form has neither \"paused\" nor \"resumed\"")}
	}
	if _, err := p.keys.Update(c.Context(), c.account, id, apikeys.UpdateParams{Enabled: &on, If: p.mayExtend(c)}); err != nil {
		return response{}, err
	}
	return goTo("api-keys/"+id, to), nil
}

// mayExtend returns a condition that refuses to extend a key if the user may not create keys.
func (p *pages) mayExtend(c *call) apikeys.Condition {
	return func(before, after apikeys.Key) error {
		if apikeys.Extends(before, after) {
			return p.permit(c.Request, auth.CreateKey)
		}
		return nil
	}
}

// keepExpiry is the choice to leave the expiry of a key as it is.
const keepExpiry = "keep"

func (p *pages) editKey(_ *call, key *apikeys.Key) (response, error) {
	var lines []string
	labels := key.Labels.Map()
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		lines = append(lines, name+"="+labels[name])
	}
	f := newForm(map[string][]string{"labels": {strings.Join(lines, "\n")}, "expiry": {keepExpiry}, "version": {keyState(key)}})
	return p.keyEditForm(key, f, "", http.StatusOK), nil
}

func (p *pages) keyEditForm(key *apikeys.Key, f form, problem string, status int) response {
	view := p.keyFormView(f, problem)
	shown := p.viewKey(key)
	view.Key, view.Expiries = &shown, append([]choice{{keepExpiry, "Unchanged"}}, view.Expiries...)
	return response{status: status, page: "key-edit", title: "Edit " + key.Name, tab: "keys", data: view}
}

func (p *pages) updateKey(c *call, key *apikeys.Key) (response, error) {
	f := newForm(c.PostForm)
	params := apikeys.UpdateParams{Labels: f.labels()}
	for name := range key.Labels.Map() {
		if _, kept := params.Labels[name]; !kept {
			params.Labels[name] = nil
		}
	}
	if f.Values.Get("expiry") != keepExpiry {
		at := p.readExpiry(f)
		params.ExpiresAt = &at
	}
	mayExtend := p.mayExtend(c)
	params.If = func(before, after apikeys.Key) error {
		if keyState(&before) != f.Values.Get("version") {
			return errChanged
		}
		return mayExtend(before, after)
	}
	var err error
	if len(f.Errors) == 0 {
		_, err = p.keys.Update(c.Context(), c.account, key.ID, params)
	}
	wrong, invalid := errors.AsType[*apierr.ValidationError](err)
	switch {
	case errors.Is(err, errChanged):
		f.Values.Set("version", keyState(key))
		return p.keyEditForm(key, f, "This key was changed since you opened the form. Save again to replace those changes with yours.", http.StatusConflict), nil
	case invalid:
		f.Errors[keyFields[wrong.Field]] = sentence(wrong.Reason)
	case err != nil:
		return response{}, err
	}
	if len(f.Errors) > 0 {
		return p.keyEditForm(key, f, "", http.StatusUnprocessableEntity), nil
	}
	return goTo("api-keys/"+key.ID, "saved"), nil
}

// labels returns the labels in the form, one per line, and records an error of the field.
func (f form) labels() map[string]*string {
	labels := make(map[string]*string)
	for line := range strings.SplitSeq(f.Values.Get("labels"), "\n") {
		name, value, found := strings.Cut(line, "=") // no name has a =, and no label has outer spaces
		name, value = strings.Trim(name, " \t\r"), strings.Trim(value, " \t\r")
		switch {
		case found:
			labels[name] = &value
		case name != "":
			f.Errors["labels"] = "Write each label on a line of its own, as name=value."
		}
	}
	return labels
}
