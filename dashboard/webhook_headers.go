package dashboard

import (
	"slices"
	"strings"

	"github.com/storageapi/storageapi/webhooks"
)

// fillHeaders fills in the headers of a webhook, except secret ones, whose values pages never show.
func (f form) fillHeaders(headers []webhooks.Header) {
	var lines []string
	for _, h := range headers {
		if !h.Secret {
			lines = append(lines, h.Name+": "+h.Value)
		}
	}
	f.Values.Set("headers", strings.Join(lines, "\n"))
}

// headers returns the headers in the form, each on its own line.
func (f form) headers() (list []webhooks.Header) {
	for _, name := range [...]string{"headers", "secrets"} {
		for line := range strings.Lines(f.Values.Get(name)) {
			line = strings.TrimSpace(line)
			header, value, _ := strings.Cut(line, ":")
			if line != "" {
				list = append(list, webhooks.Header{Name: strings.TrimSpace(header), Value: strings.TrimSpace(value), Secret: name == "secrets"})
			}
		}
	}
	return list
}

// changes returns the headers of the form, and the removals of the webhook's other headers: plain
// ones that are not in the form, and secret ones that the user has selected.
func (f form) changes(before, after []webhooks.Header) []webhooks.Header {
	for _, h := range before {
		given := slices.ContainsFunc(after, func(a webhooks.Header) bool { return strings.EqualFold(a.Name, h.Name) })
		if !given && (!h.Secret || f.Has("remove", h.Name)) {
			after = append(after, webhooks.Header{Name: h.Name})
		}
	}
	return after
}
