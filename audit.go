package storageapi

import (
	"context"
	"net"
	"net/http"

	"github.com/storageapi/storageapi/audit"
)

// Attribute returns a copy of r's context. The audit log attributes changes made with that context
// to actor and records the request's ID and client address. Use it in the host's own routes that
// change keys or webhooks for a person. The API and package dashboard already do.
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
