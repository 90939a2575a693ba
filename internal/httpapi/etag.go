package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// etag returns the strong entity tag of a resource, for optimistic concurrency: a hash of
// the JSON of state. state must contain every field that requests can change and no field
// that changes by itself. It may contain secrets.
func etag(state any) (string, error) {
	data, err := json.Marshal(state)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + `"`, nil
}

// A precondition is a parsed If-Match header (RFC 9110, section 13.1.1). The zero
// precondition, for a request without the header, always holds.
type precondition struct {
	given bool
	any   bool     // "*"
	tags  []string // strong tags with their quotes; weak tags match nothing
}

// ifMatch returns the precondition of the request, or an [*requestError] that names
// the header.
func (c *call) ifMatch() (precondition, error) {
	lines, given := c.Header["If-Match"]
	if !given {
		return precondition{}, nil
	}
	return parseIfMatch(strings.Join(lines, ","))
}

// check returns errPrecondition unless the precondition holds for an existing resource with
// the given tag. err is the error of computing the tag, and is returned as is.
func (p precondition) check(tag string, err error) error {
	if err != nil || !p.given || p.any || slices.Contains(p.tags, tag) {
		return err
	}
	return errPrecondition
}

// parseIfMatch parses "*", or a list of entity tags separated by commas. The list may have
// empty elements.
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
