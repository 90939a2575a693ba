package httpapi

import (
	"net/url"
	"strings"
	"testing"

	"github.com/storageapi/storageapi/internal/id"
)

const someULID = "01JZ5T3K9QWERTYASDFGHZXCVB"

func parsedPage(query string) (after string, limit int, err error) {
	values, err := parseQuery(query, []string{"limit", "cursor"})
	if err != nil {
		return "", 0, err
	}
	return parsePage(values, id.Key)
}

// parsed parses a query, which may have any parameter names, and calls parse with the parameters.
func parsed[T any](query string, parse func(url.Values) (T, error)) (result T, err error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return result, invalid("query", "must be readable")
	}
	return parse(values)
}

func TestParsePage(t *testing.T) {
	cursor := encodeCursor(id.Key + someULID)
	tests := []struct {
		query string
		after string
		limit int
	}{
		{"", "", 20},
		{"limit=1", "", 1},
		{"limit=100", "", 100},
		{"cursor=" + cursor, id.Key + someULID, 20},
		{"limit=5&cursor=" + cursor, id.Key + someULID, 5},
	}
	for _, test := range tests {
		after, limit, err := parsedPage(test.query)
		if after != test.after || limit != test.limit || err != nil {
			t.Errorf("%q: got %q, %d, %v; want %q, %d", test.query, after, limit, err, test.after, test.limit)
		}
	}
}

func TestParsePage_Invalid_ReturnsError(t *testing.T) {
	cursor := encodeCursor(id.Key + someULID)
	tests := []struct{ query, field string }{
		{"limit=", "limit"},
		{"limit", "limit"},
		{"limit=0", "limit"},
		{"limit=-1", "limit"},
		{"limit=101", "limit"},
		{"limit=1.0", "limit"},
		{"limit=1e1", "limit"},
		{"limit=0x10", "limit"},
		{"limit=+1", "limit"}, // "+" means a space
		{"limit=99999999999999999999", "limit"},
		{"limit=1&limit=1", "limit"},
		{"cursor=", "cursor"},
		{"cursor=x", "cursor"},
		{"cursor=" + id.Key + someULID, "cursor"},
		{"cursor=" + cursor + "&cursor=" + cursor, "cursor"},
		{"cursor=" + cursor + "=", "cursor"},
		{"cursor=" + cursor + "%0A", "cursor"},
		{"cursor=" + cursor[:8] + "%0D%0A" + cursor[8:], "cursor"},
		{"cursor=" + encodeCursor(id.Webhook+someULID), "cursor"},
		{"cursor=" + encodeCursor(id.Key+strings.ToLower(someULID)), "cursor"},
		{"cursor=" + encodeCursor(id.Key+someULID+"0"), "cursor"},
		{"cursor=" + encodeCursor(""), "cursor"},
		{"limit=%zz", "query"},
		{"a;b", "query"},
	}
	for _, test := range tests {
		_, _, err := parsedPage(test.query)
		if err == nil || !strings.HasPrefix(err.Error(), test.field+" must ") {
			t.Errorf("%q: got error %v, want one about %s", test.query, err, test.field)
		}
	}
}
