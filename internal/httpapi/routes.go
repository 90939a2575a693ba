package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/storageapi/storageapi/auth"
)

// A route is a method and a path pattern of the API, with its handler.
type route struct {
	method  string
	pattern string      // literal segments, {id}, and another parameter: see pathParams
	action  auth.Action // the action that the caller must be allowed to perform
	body    bodyRule
	query   []string // known parameters
	handle  func(*call) (response, error)
}

// Every valid key may perform readSelf and revokeSelf; [Config.Authorize] is not called for them.
const (
	readSelf   auth.Action = "read self"
	revokeSelf auth.Action = "revoke self"
)

// DefaultPrefix is the start of all patterns in [api.routes].
const DefaultPrefix = "/v2"

// routes returns all routes, under DefaultPrefix.
func (a *api) routes() []route {
	var (
		page       = []string{"limit", "cursor"}
		keys       = []string{"name", "scope", "label", "unusedSince", "limit", "cursor"}
		deliveries = []string{"state", "type", "failed", "from", "to", "limit", "cursor"}
		events     = []string{"type", "webhook", "since", "from", "to", "include", "wait", "limit", "cursor"}
		auditLog   = []string{"target", "action", "since", "until", "limit", "cursor"}
	)
	return []route{
		{"POST", "/v2/api-keys", auth.CreateKey, neededBody, nil, a.createKey},
		{"GET", "/v2/api-keys", auth.ReadKeys, noBody, keys, a.listKeys},
		{"GET", "/v2/api-keys/self", readSelf, noBody, nil, a.getSelf}, // must precede {id}
		{"DELETE", "/v2/api-keys/self", revokeSelf, noBody, nil, a.revokeSelf},
		{"GET", "/v2/api-keys/{id}", auth.ReadKeys, noBody, nil, a.getKey},
		{"PATCH", "/v2/api-keys/{id}", auth.UpdateKey, neededBody, nil, a.updateKey},
		{"DELETE", "/v2/api-keys/{id}", auth.DeleteKey, noBody, nil, a.deleteKey},
		{"POST", "/v2/api-keys/{id}/rotate", auth.RotateKey, optionalBody, nil, a.rotateKey},
		{"GET", "/v2/api-keys/{id}/refusals", auth.ReadKeys, noBody, nil, a.listRefusals},

		{"POST", "/v2/notifications/webhooks", auth.CreateWebhook, neededBody, nil, a.createWebhook},
		{"GET", "/v2/notifications/webhooks", auth.ReadWebhooks, noBody, page, a.listWebhooks},
		{"GET", "/v2/notifications/webhooks/{id}", auth.ReadWebhooks, noBody, nil, a.getWebhook},
		{"PATCH", "/v2/notifications/webhooks/{id}", auth.UpdateWebhook, neededBody, nil, a.updateWebhook},
		{"DELETE", "/v2/notifications/webhooks/{id}", auth.DeleteWebhook, noBody, nil, a.deleteWebhook},
		{"POST", "/v2/notifications/webhooks/{id}/rotate-secret", auth.UpdateWebhook, optionalBody, nil, a.rotateSecret},
		{"POST", "/v2/notifications/webhooks/{id}/test", auth.UpdateWebhook, optionalBody, nil, a.sendTest},
		{"GET", "/v2/notifications/webhooks/{id}/deliveries", auth.ReadWebhooks, noBody, deliveries, a.listDeliveries},
		{"GET", "/v2/notifications/webhooks/{id}/deliveries/{eventId}", auth.ReadWebhooks, noBody, nil, a.getDelivery},
		{"GET", "/v2/notifications/webhooks/{id}/deliveries/{eventId}/body", auth.ReadEvents, noBody, nil, a.getDeliveryBody},
		{"GET", "/v2/notifications/webhooks/{id}/deliveries/{eventId}/explanation", auth.ReadEvents, noBody, nil, a.explainDelivery},
		{"POST", "/v2/notifications/webhooks/{id}/deliveries/{eventId}/redeliver", auth.UpdateWebhook, emptyBody, nil, a.redeliver},
		{"POST", "/v2/notifications/webhooks/{id}/recoveries", auth.UpdateWebhook, optionalBody, nil, a.createRecovery},
		{"GET", "/v2/notifications/webhooks/{id}/recoveries/{recoveryId}", auth.ReadWebhooks, noBody, nil, a.getRecovery},

		{"GET", "/v2/notifications/events", auth.ReadEvents, noBody, events, a.listEvents},
		{"GET", "/v2/notifications/events/{id}/body", auth.ReadEvents, noBody, nil, a.getEventBody},

		{"GET", "/v2/audit-log", auth.ReadAudit, noBody, auditLog, a.listAuditLog},
	}
}

// Routes returns all routes, such as "POST /v2/api-keys", for tests of the documentation.
func Routes() []string {
	var list []string
	for _, r := range new(api).routes() {
		list = append(list, r.method+" "+r.pattern)
	}
	return list
}

// under replaces DefaultPrefix with prefix in the patterns of the routes, and returns the routes.
func under(prefix string, routes []route) []route {
	for i := range routes {
		routes[i].pattern = prefix + strings.TrimPrefix(routes[i].pattern, DefaultPrefix)
	}
	return routes
}

// ParsePrefix validates a prefix and returns the text to put before the routes. An empty prefix
// means DefaultPrefix, and "/" means "". The error for an invalid prefix states the rules.
func ParsePrefix(prefix string) (string, error) {
	switch {
	case prefix == "":
		return DefaultPrefix, nil
	case prefix == "/":
		return "", nil
	case prefix[0] != '/' || path.Clean(prefix) != prefix || strings.ContainsFunc(prefix, notInPrefix):
		return "", fmt.Errorf(`must begin with a slash, not end with one, and have only visible ASCII characters that need no escaping, such as "/api/v1": %q`, prefix)
	}
	return prefix, nil
}

// notInPrefix reports whether r must not be in a prefix, because a URL would escape it or because
// it is special in a route pattern or in the OpenAPI document.
func notInPrefix(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune("%?#\"\\<>^`{|}", r)
}

// A router finds routes by exact path. An [http.ServeMux] would not do, because it redirects paths
// that are not clean.
type router []pathRoutes

// pathRoutes holds all routes that share a pattern.
type pathRoutes struct {
	segments []string
	methods  map[string]*route
	allow    string // the methods, for the Allow header
}

// newRouter returns a router. It fails if a route has no action or occurs twice.
func newRouter(routes []route) (router, error) {
	var rt router
	byPattern := make(map[string]int)
	for _, r := range routes {
		if r.action == "" {
			return nil, fmt.Errorf("httpapi: route %s %s declares no authority", r.method, r.pattern)
		}
		i, known := byPattern[r.pattern]
		if !known {
			i = len(rt)
			byPattern[r.pattern] = i
			rt = append(rt, pathRoutes{strings.Split(r.pattern, "/"), make(map[string]*route), ""})
		}
		methods := rt[i].methods
		if methods[r.method] != nil {
			return nil, fmt.Errorf("httpapi: duplicate route %s %s", r.method, r.pattern)
		}
		methods[r.method] = &r
		if r.method == http.MethodGet {
			methods[http.MethodHead] = &r // net/http drops the body
		}
		rt[i].allow = allow(methods)
	}
	return rt, nil
}

func allow(methods map[string]*route) string {
	var names []string
	for name := range methods {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// pathParams are the values of the path parameters. They can be arbitrary text, not only IDs.
type pathParams struct {
	id    string // for {id}
	subID string // for {eventId} or {recoveryId}, below {id}
}

// find returns the route of a request, and its path parameters.
func (rt router) find(r *http.Request) (*route, pathParams, error) {
	segments, err := split(r.URL)
	if err != nil {
		return nil, pathParams{}, errNoRoute
	}
	for i := range rt {
		at, ok := rt[i].match(segments)
		if !ok {
			continue
		}
		if route := rt[i].methods[r.Method]; route != nil {
			return route, at, nil
		}
		return nil, pathParams{}, &methodError{rt[i].allow}
	}
	return nil, pathParams{}, errNoRoute
}

// pattern returns the method and pattern of a request's route, or "".
func (rt router) pattern(r *http.Request) string {
	route, _, err := rt.find(r)
	if err != nil {
		return ""
	}
	return route.method + " " + route.pattern
}

// split returns the segments of a path. It splits before decoding, so that an encoded
// slash stays within its segment.
func split(u *url.URL) ([]string, error) {
	segments := strings.Split(u.EscapedPath(), "/")
	for i, escaped := range segments {
		segment, err := url.PathUnescape(escaped)
		if err != nil {
			return nil, err
		}
		segments[i] = segment
	}
	return segments, nil
}

// match compares the path segments exactly, without cleaning the path.
func (e *pathRoutes) match(segments []string) (at pathParams, ok bool) {
	if len(segments) != len(e.segments) {
		return pathParams{}, false
	}
	for i, want := range e.segments {
		switch isParameter := strings.HasPrefix(want, "{"); {
		case isParameter && segments[i] == "", !isParameter && segments[i] != want:
			return pathParams{}, false
		case want == "{id}":
			at.id = segments[i]
		case isParameter:
			at.subID = segments[i]
		}
	}
	return at, true
}
