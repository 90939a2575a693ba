package dashboard

import (
	"errors"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/webhooks"
)

// An eventBodyView is the view of an event's body.
type eventBodyView struct {
	Text   string // the exact bytes that were signed and sent; empty: no longer stored
	Size   string
	Until  *when  // end of its retention; nil: stored forever, or not at all
	Header string // name of the header with the signature of the body alone
}

// viewEventBody returns the view of the body of a delivery's event, or nil if the user may not
// read events.
func (p *pages) viewEventBody(c *call, d *webhooks.Delivery) (*eventBodyView, error) {
	if p.permit(c.Request, auth.ReadEvents) != nil {
		return nil, nil
	}
	body, err := p.webhooks.Body(c.Context(), c.account, d.EventID)
	if err != nil && !errors.Is(err, webhooks.ErrBodyGone) && !errors.Is(err, apierr.ErrNotFound) {
		return nil, err
	}
	view := p.viewBody(body)
	if until := p.webhooks.BodyKeptUntil(d.PublishedAt); !until.IsZero() {
		view.Until = p.when(until)
	}
	return view, nil
}

func (p *pages) viewBody(body []byte) *eventBodyView {
	return &eventBodyView{Text: string(body), Size: count(len(body), "byte"), Header: p.webhooks.SignatureHeader()}
}
