package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/storageapi/storageapi/webhooks"
)

// maxWait is the maximum of the parameter wait, in seconds.
const maxWait = 30

// parseWait parses the optional parameter wait of the list of events, in seconds.
func parseWait(values url.Values) (time.Duration, error) {
	seconds, err := parseNumber(values, "wait", maxWait, 0)
	if err == nil && seconds > 0 && !values.Has("since") {
		err = invalid("wait", `must be combined with "since"`)
	}
	return time.Duration(seconds) * time.Second, err
}

// mayWait reports whether a request may wait for events. Its context ends with its key.
func mayWait(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.URL.RawQuery != "" && r.URL.Query().Has("wait")
}

// waitEvents waits until the query selects an event, and returns a page of the list. The page is
// empty if the wait ends first: because the client has disconnected, the server shuts down, or
// three quarters of its time for the request are over.
func (a *api) waitEvents(c *call, query webhooks.EventQuery, wait time.Duration) (webhooks.EventPage, error) {
	request := c.Request.Context()
	shorten := func(limit time.Duration) { wait = min(wait, limit*3/4) }
	if deadline, ok := request.Deadline(); ok {
		shorten(time.Until(deadline))
	}
	if server, ok := request.Value(http.ServerContextKey).(*http.Server); ok && server.WriteTimeout > 0 {
		shorten(server.WriteTimeout)
	}
	ctx, cancel := context.WithTimeout(request, wait)
	defer cancel()
	defer context.AfterFunc(a.shutdown(c.Request), cancel)()
	page, err := a.webhooks.WaitEvents(ctx, c.caller.Account, query)
	if err == nil {
		err = a.recheck(c)
	}
	return page, err
}

// shutdown returns a context that ends when the request's server begins to shut down, because
// Shutdown waits for all requests. Each request calls it first, since a server that has begun to
// shut down does not call functions that are registered then.
func (a *api) shutdown(r *http.Request) context.Context {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return context.Background()
	}
	if known, ok := a.servers.Load(server); ok {
		return known.(context.Context)
	}
	ctx, cancel := context.WithCancel(context.Background())
	known, loaded := a.servers.LoadOrStore(server, ctx)
	if loaded {
		cancel()
	} else {
		server.RegisterOnShutdown(cancel)
	}
	return known.(context.Context)
}
