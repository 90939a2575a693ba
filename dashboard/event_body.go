package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/webhooks"
)

// An eventBodyView is the template data for an event's body.
type eventBodyView struct {
	Text      string // the exact signed bytes; empty if they are not stored
	Formatted string // Text with line breaks and indentation; empty if it is not JSON or deeply nested
	Size      string
	Until     *when  // when the body will be deleted; nil if it is kept forever or not stored
	Header    string // name of the header that signs only the body
}

// viewEventBody returns the template data for an event's body, or nil if the user may not read
// events.
func (p *pages) viewEventBody(c *call, eventID string, published time.Time) (*eventBodyView, error) {
	if p.permit(c.Request, auth.ReadEvents) != nil {
		return nil, nil
	}
	body, err := p.webhooks.Body(c.Context(), c.account, eventID)
	if err != nil && !errors.Is(err, webhooks.ErrBodyGone) && !errors.Is(err, apierr.ErrNotFound) {
		return nil, err
	}
	view := p.viewBody(body)
	if until := p.webhooks.BodyKeptUntil(published); !until.IsZero() {
		view.Until = p.when(until)
	}
	return view, nil
}

func (p *pages) viewBody(body []byte) *eventBodyView {
	return &eventBodyView{Text: string(body), Formatted: formatted(body), Size: count(len(body), "byte"), Header: p.webhooks.SignatureHeader()}
}

// maxDepth is the maximum nesting of bodies that are formatted. The size of the indentation grows
// with the square of the nesting.
const maxDepth = 32

// formatted returns a body with line breaks and indentation added, and nothing else changed. It
// returns "" if the body is not JSON or is nested more deeply than maxDepth.
func formatted(body []byte) string {
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch b := body[i]; {
		case b == '\\': // a backslash occurs only in strings
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{', b == '[':
			if depth++; depth > maxDepth {
				return ""
			}
		case b == '}', b == ']':
			depth--
		}
	}
	var text bytes.Buffer
	if json.Indent(&text, body, "", "  ") != nil {
		return ""
	}
	return text.String()
}
