package storageapi

import (
	"context"
	"net"
	"net/http"

	"github.com/storageapi/storageapi/audit"
)

// Attribute returns the context of a request, under which what the services change is the
// actor's in the audit log, with the id and the client address of the request: for routes
// of the host's own that change keys or webhooks for a person. The API itself, and package
// dashboard, do so already.
func (h *Handler) Attribute(r *http.Request, actor audit.Actor) context.Context {
	return h.attribute(r, actor)
}

func (c *Config) attribute(r *http.Request, actor audit.Actor) context.Context {
	var id, address string
	if c.RequestID != nil {
		id = c.RequestID(r)
	}
	if c.ClientAddress != nil {
		address = c.ClientAddress(r)
	} else if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		address = host
	}
	return audit.WithRequest(audit.WithActor(r.Context(), actor), id, address)
}
