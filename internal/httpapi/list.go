package httpapi

import (
	"encoding/base64"
	"net/url"
	"strconv"

	"github.com/storageapi/storageapi/internal/id"
)

const (
	defaultLimit = 20
	maxLimit     = 100
)

// A listView is a part of a list. NextCursor is null at its end.
type listView struct {
	Data       []any   `json:"data"`
	NextCursor *string `json:"nextCursor"`
	HasMore    bool    `json:"hasMore"`
}

// showList answers with a part of a list; next is what the cursor of the part that
// follows holds, empty if there is none.
func showList[T, V any](items []T, next string, view func(T) V) (answer, error) {
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

// parsePage parses limit and cursor, each of which may be absent. Parameters of
// other names mean nothing and are left alone.
func parsePage(query, kind string) (after string, limit int, err error) {
	values, err := parseQuery(query)
	if err != nil {
		return "", 0, err
	}
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

var errCursor = invalid("cursor", "must be one nextCursor of this list, unchanged; omit it to start with the newest")

func parseQuery(query string) (url.Values, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, invalid("query", "must be percent-encoded name=value pairs joined by &")
	}
	return values, nil
}

// parseLimit returns how many items a part of a list has at most.
func parseLimit(values url.Values) (int, error) {
	texts, given := values["limit"]
	if !given {
		return defaultLimit, nil
	}
	limit, err := strconv.ParseUint(texts[0], 10, 8) // takes no sign
	if err != nil || len(texts) > 1 || limit < 1 || limit > maxLimit {
		return 0, invalid("limit", "must be one whole number from 1 to 100")
	}
	return int(limit), nil
}

// A cursor is the id of the last item seen, wrapped so that clients do not build
// their own.
func encodeCursor(last string) string { return base64.RawURLEncoding.EncodeToString([]byte(last)) }

// parseCursor takes back what encodeCursor made, to the letter.
func parseCursor(s, kind string) (last string, valid bool) {
	decoded, err := base64.RawURLEncoding.DecodeString(s)
	last = string(decoded)
	return last, err == nil && id.Valid(kind, last) && encodeCursor(last) == s
}
