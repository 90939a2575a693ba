package httpapi

import (
	"encoding/base64"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/internal/fields"
)

// etag returns the strong entity tag of a key or webhook, for optimistic concurrency. It is a hash
// of every field that requests can change. What a receiver does affects the tag only if it disables
// the webhook.
func etag(resource fields.Record) string {
	sum := fields.Sum(resource, fields.Versioned)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`
}

// A precondition is a parsed If-Match header (RFC 9110, section 13.1.1). The zero precondition
// stands for a request without the header and always holds.
type precondition struct {
	given bool
	any   bool     // "*"
	tags  []string // strong tags with their quotes; weak tags never match
}

// ifMatch returns the precondition of the request. If the header is invalid, it returns a
// validation error that names the header.
func (c *call) ifMatch() (precondition, error) {
	lines, given := c.Header["If-Match"]
	if !given {
		return precondition{}, nil
	}
	return parseIfMatch(strings.Join(lines, ","))
}

// check returns errPrecondition unless the precondition allows a resource with this tag.
func (p precondition) check(tag string) error {
	if !p.given || p.any || slices.Contains(p.tags, tag) {
		return nil
	}
	return errPrecondition
}

// parseIfMatch parses "*" or a comma-separated list of entity tags, which may have empty elements.
func parseIfMatch(list string) (precondition, error) {
	const blank = " \t"
	malformed := invalid("If-Match", `must be * or quoted entity tags as received in ETag, separated by commas`)
	if strings.Trim(list, blank) == "*" {
		return precondition{given: true, any: true}, nil
	}
	parsed, tags := precondition{given: true}, 0
	for list = strings.TrimLeft(list, ", \t"); list != ""; list = strings.TrimLeft(list, ", \t") {
		opaque, weak := strings.CutPrefix(list, "W/")
		if opaque[:min(1, len(opaque))] != `"` {
			return precondition{}, malformed
		}
		end := strings.IndexByte(opaque[1:], '"') + 2
		if end < 2 || strings.ContainsFunc(opaque[1:end-1], notInTag) {
			return precondition{}, malformed
		}
		if tags++; !weak {
			parsed.tags = append(parsed.tags, opaque[:end])
		}
		list = strings.TrimLeft(opaque[end:], blank)
		if list != "" && list[0] != ',' {
			return precondition{}, malformed
		}
	}
	if tags == 0 {
		return precondition{}, malformed
	}
	return parsed, nil
}

// notInTag reports whether r is not allowed between the quotes of an entity tag.
func notInTag(r rune) bool { return r <= ' ' || r == 0x7f }
