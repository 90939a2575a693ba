package httpapi

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/storageapi/storageapi/internal/id"
)

const (
	defaultLimit  = 20
	maxLimit      = 100
	maxParameters = 200 // per query; allows a filter to list all event types, scopes or actions
)

// A listView is a page of a list. NextCursor is null at the end of the list.
type listView struct {
	Data       []any   `json:"data"`
	NextCursor *string `json:"nextCursor"`
	HasMore    bool    `json:"hasMore"`
}

// showList answers with a page of a list. next becomes the cursor of the next page; empty means
// that this is the last page.
func showList[T, V any](items []T, next string, view func(T) V) (response, error) {
	part := listView{Data: []any{}, HasMore: next != ""}
	for _, item := range items {
		part.Data = append(part.Data, view(item))
	}
	if part.HasMore {
		cursor := encodeCursor(next)
		part.NextCursor = &cursor
	}
	return ok(part)
}

// parsePage parses the optional parameters limit and cursor. The cursor must name an ID of this
// kind.
func parsePage(values url.Values, kind string) (after string, limit int, err error) {
	limit, err = parseLimit(values)
	if err != nil {
		return "", 0, err
	}
	if texts, given := values["cursor"]; given {
		var valid bool
		if after, valid = parseCursor(texts[0], kind); !valid || len(texts) > 1 {
			return "", 0, errCursor
		}
	}
	return after, limit, nil
}

var errCursor = invalid("cursor", "must be a single unmodified nextCursor of this list; omit it to start with the newest")

// parseQuery parses the parameters of a request. It rejects unknown names, because otherwise a
// misspelt filter would list everything. To bound the cost of a query, it counts the parameters
// before parsing them.
func parseQuery(query string, names []string) (url.Values, error) {
	if strings.Count(query, "&") >= maxParameters {
		return nil, invalid("query", fmt.Sprintf("must have at most %d parameters", maxParameters))
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, invalid("query", "must be percent-encoded name=value pairs joined by &")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case slices.Contains(names, name):
		case len(names) == 0:
			return nil, invalid("query", fmt.Sprintf("has an unknown parameter %.32q; this path has none", name))
		default:
			return nil, invalid("query", fmt.Sprintf("has an unknown parameter %.32q; the parameters are %s", name, strings.Join(names, ", ")))
		}
	}
	return values, nil
}

// parseLimit parses the page size.
func parseLimit(values url.Values) (int, error) {
	return parseNumber(values, "limit", maxLimit, defaultLimit)
}

// parseNumber parses an optional parameter whose values are 1 to most.
func parseNumber(values url.Values, name string, most, otherwise int) (int, error) {
	texts, given := values[name]
	if !given {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(texts[0], 10, 8) // ParseUint accepts no sign
	if err != nil || len(texts) > 1 || n < 1 || int(n) > most {
		return 0, invalid(name, fmt.Sprintf("must be a single whole number from 1 to %d", most))
	}
	return int(n), nil
}

// encodeCursor returns a cursor that continues after the given position. It is encoded to
// discourage clients from building cursors themselves.
func encodeCursor(last string) string { return base64.RawURLEncoding.EncodeToString([]byte(last)) }

// parseCursor decodes a cursor made by encodeCursor. It rejects other encodings of the same ID.
func parseCursor(s, kind string) (last string, valid bool) {
	decoded, err := base64.RawURLEncoding.DecodeString(s)
	last = string(decoded)
	return last, err == nil && id.Valid(kind, last) && encodeCursor(last) == s
}
