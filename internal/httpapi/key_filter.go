package httpapi

import (
	"net/url"
	"unicode/utf8"

	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/internal/id"
	"github.com/storageapi/storageapi/scopes"
)

func (a *api) listKeys(c *call) (answer, error) {
	after, limit, err := parsePage(c.query, id.Key)
	if err != nil {
		return answer{}, err
	}
	filter, err := parseKeyFilter(c.query, a.keys.Scopes())
	if err != nil {
		return answer{}, err
	}
	page, err := a.keys.Find(c.Context(), c.caller.Account, filter, apikeys.Page{After: after, Limit: limit})
	if err != nil {
		return answer{}, err
	}
	return showList(page.Keys, page.Next, viewKeyRead)
}

// parseKeyFilter parses the optional filters name (a part of the name), scope (repeatable) and
// unusedSince.
func parseKeyFilter(values url.Values, known *scopes.Vocabulary) (filter apikeys.Filter, err error) {
	if filter.Name, err = parseNamePart(values); err != nil {
		return filter, err
	}
	if names := values["scope"]; len(names) > 0 {
		if filter.Scopes, err = known.ParseSet(names); err != nil {
			return filter, invalid("scope", "must be a scope of the service; repeat the parameter for several")
		}
	}
	filter.UnusedSince, err = parseBoundIn(values, "unusedSince")
	return filter, err
}

func parseNamePart(values url.Values) (string, error) {
	texts, given := values["name"]
	switch {
	case !given:
		return "", nil
	case len(texts) > 1 || texts[0] == "" || !utf8.ValidString(texts[0]) || utf8.RuneCountInString(texts[0]) > 128:
		return "", invalid("name", "must be one text of 1 to 128 characters")
	}
	return texts[0], nil
}
