package webhooks

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/webhooks/internal/outbound"
)

const maxURL = 2048

// checkURL checks the URL of a webhook: https, a host, no user information, no fragment, at most
// 2,048 characters, and no address that the guard would refuse to dial. It does not resolve
// names, because their addresses are checked at every dial.
func checkURL(text string, guard *outbound.Guard) error {
	bad := func(reason string) error { return input.Invalid("url", reason) }
	switch {
	case text == "":
		return bad("is required: the https URL that receives the events")
	case len(text) > maxURL:
		return bad("must be at most 2,048 characters")
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }):
		return bad("must be ASCII without spaces, control characters and backslashes; percent-encode the path, and write an international host name in punycode")
	}
	u, err := url.Parse(text)
	if err != nil {
		return bad("must be a valid URL") // do not pass on the error, which would repeat the text
	}
	switch {
	case u.Scheme != "https":
		return bad("must begin with https://")
	case u.Hostname() == "" || u.Opaque != "":
		return bad("must have a host: https://example.com/hooks")
	case u.User != nil:
		return bad("must not contain a user name or password; put a secret into the path or query instead")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return bad("must not have a fragment (#…)")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return bad("must have a port from 1 to 65535, or none")
		}
	}
	if reason := guard.CheckHost(u.Hostname()); reason != "" {
		return bad(reason)
	}
	return nil
}

// origin returns the part of a URL that is safe to log: scheme, host and port. Paths and queries of
// webhooks often hold secrets.
func origin(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "invalid URL"
	}
	return u.Scheme + "://" + u.Host
}
