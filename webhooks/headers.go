package webhooks

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/internal/input"
	"github.com/storageapi/storageapi/signing"
)

// The limits of [CreateParams.Headers].
const (
	maxHeaders      = 10
	maxHeaderBytes  = 4 << 10 // as sent, with separators
	minHeaderSecret = 8       // bytes; shorter values cannot be found and redacted in responses
)

// reserved reports whether a webhook or a host must not set the header: it has a meaning in every
// request, it describes the connection or the sender, or it is one of this library's. Receivers
// may treat an underscore as a hyphen.
func reserved(name string) bool {
	name = strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	for _, prefix := range [...]string{"content-", "webhook-", "proxy-", "x-forwarded-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	switch name {
	case "host", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "http2-settings", "expect",
		"user-agent", "accept-encoding", "date", "forwarded", "via", "x-real-ip", "traceparent", "tracestate":
		return true
	}
	return false
}

// checkHeader returns why a header must not be sent, or "". signature is the name of the signature
// header.
func checkHeader(h Header, signature string) string {
	switch {
	case !isToken(h.Name):
		return fmt.Sprintf("must have names that are HTTP tokens, such as X-Api-Token, not %.32q", h.Name)
	case reserved(h.Name), http.CanonicalHeaderKey(strings.ReplaceAll(h.Name, "_", "-")) == signature:
		return fmt.Sprintf("must not set %s, which is reserved", h.Name)
	case !isHeaderValue(h.Value):
		return fmt.Sprintf("must give %s a value of visible ASCII characters, with spaces only between them", h.Name)
	case h.Secret && len(h.Value) < minHeaderSecret:
		return fmt.Sprintf("must give %s a value of at least %d characters, because it is secret", h.Name, minHeaderSecret)
	}
	return ""
}

// checkHeaders returns headers in their stored form. If changes is set, a header without a value is
// allowed: it removes the header of that name.
func (s *WebhookService) checkHeaders(headers []Header, changes bool) ([]Header, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	checked := make([]Header, len(headers))
	for i, h := range headers {
		h.Name = http.CanonicalHeaderKey(h.Name)
		probe := h
		if changes && h.Value == "" {
			probe.Value, probe.Secret = "-", false
		}
		if reason := checkHeader(probe, s.SignatureHeader()); reason != "" {
			return nil, input.Invalid("headers", reason)
		}
		checked[i] = h
	}
	slices.SortFunc(checked, compareHeaders)
	for i := range checked[1:] {
		if checked[i].Name == checked[i+1].Name {
			return nil, input.Invalid("headers", "must not have "+checked[i].Name+" twice")
		}
	}
	if !changes {
		if err := checkHeaderSizes(checked); err != nil {
			return nil, err
		}
	}
	return checked, nil
}

func compareHeaders(a, b Header) int { return cmp.Compare(a.Name, b.Name) }

// checkHeaderSizes checks the limits on all headers of a webhook together.
func checkHeaderSizes(headers []Header) error {
	size := 0
	for _, h := range headers {
		size += len(h.Name) + len(": ") + len(h.Value) + len("\r\n")
	}
	if len(headers) > maxHeaders || size > maxHeaderBytes {
		return input.Invalid("headers", fmt.Sprintf("must be at most %d, and at most %d bytes in all", maxHeaders, maxHeaderBytes))
	}
	return nil
}

// changeHeaders returns before with changes by name.
func changeHeaders(before, changes []Header) []Header {
	var after []Header
	for _, h := range before {
		if !slices.ContainsFunc(changes, func(c Header) bool { return c.Name == h.Name }) {
			after = append(after, h)
		}
	}
	for _, h := range changes {
		if h.Value != "" {
			after = append(after, h)
		}
	}
	slices.SortFunc(after, compareHeaders)
	return after
}

// withHeaderLimits returns a condition that also checks the headers after the change.
func withHeaderLimits(condition Condition) Condition {
	return func(before, after Webhook) error {
		if err := condition.ask(before, after); err != nil {
			return err
		}
		return checkHeaderSizes(after.Headers)
	}
}

// hideSecrets removes the signing secrets and the values of secret headers.
func hideSecrets(w *Webhook) {
	w.Secret, w.PreviousSecret = signing.Secret{}, signing.Secret{}
	w.Headers = slices.Clone(w.Headers)
	for i := range w.Headers {
		if w.Headers[i].Secret {
			w.Headers[i].Value = ""
		}
	}
}

// headerSecrets returns the secrets in a webhook's headers: the values, and the token after a
// scheme such as "Bearer".
func headerSecrets(w *Webhook) (secrets []string) {
	for _, h := range w.Headers {
		if h.Secret {
			_, token, _ := strings.Cut(h.Value, " ")
			secrets = append(secrets, h.Value, token)
		}
	}
	return secrets
}

// isHeaderValue reports whether a text is one or more visible ASCII characters, with spaces only
// between them.
func isHeaderValue(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return false
		}
	}
	return text != "" && text[0] != ' ' && text[len(text)-1] != ' '
}

func isToken(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return name != ""
}
