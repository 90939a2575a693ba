package httpapi

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/scopes"
)

func (a *api) listKeys(c *call) (response, error) {
	query, err := parseKeyQuery(c.query, a.keys.Scopes())
	if err != nil {
		return response{}, err
	}
	query.Within = c.caller.LimitedTo
	page, err := a.keys.List(c.Context(), c.caller.Account, query)
	if err != nil {
		return response{}, err
	}
	for i := range page.Keys {
		if err := a.hideCreator(c, &page.Keys[i]); err != nil {
			return response{}, err
		}
	}
	return showList(page.Keys, page.Next, viewKeyRead)
}

// parseKeyQuery parses the page parameters and the optional filters name (a part of the name),
// scope and label (both repeatable) and unusedSince.
func parseKeyQuery(values url.Values, known *scopes.Vocabulary) (query apikeys.KeyQuery, err error) {
	if query.After, query.Limit, err = parsePage(values, id.Key); err != nil {
		return query, err
	}
	if query.Name, err = parseNamePart(values); err != nil {
		return query, err
	}
	if names := values["scope"]; len(names) > 0 {
		if query.Scopes, err = known.ParseSet(names); err != nil {
			return query, invalid("scope", "must be a scope of the service; repeat the parameter for several")
		}
	}
	if query.Labels, err = parseLabelFilter(values["label"]); err != nil {
		return query, err
	}
	query.UnusedSince, err = parseBoundIn(values, "unusedSince")
	return query, err
}

func parseLabelFilter(texts []string) (labels map[string]string, err error) {
	for _, text := range texts {
		name, value, found := strings.Cut(text, "=")
		if other, given := labels[name]; !found || name == "" || given && other != value {
			return nil, invalid("label", "must be name=value; repeat the parameter for several labels, each with one value")
		}
		if labels == nil {
			labels = make(map[string]string)
		}
		labels[name] = value
	}
	return labels, nil
}

func parseNamePart(values url.Values) (string, error) {
	texts, given := values["name"]
	switch {
	case !given:
		return "", nil
	case len(texts) > 1 || texts[0] == "" || !utf8.ValidString(texts[0]) || utf8.RuneCountInString(texts[0]) > 128:
		return "", invalid("name", "must be a single value of 1 to 128 characters")
	}
	return texts[0], nil
}
