package auth

import (
	"errors"
	"net/http"
	"slices"
	"strings"
)

const (
	maxResources   = 64
	maxResourceLen = 128
)

// Resources limits a key or webhook to some of the host's resources, such as environments or
// buckets. Their names mean nothing to this library, which compares them exactly. The zero
// Resources imposes no limit. Values can be compared with ==.
type Resources struct{ names string } // sorted, without duplicates, separated by spaces

var errResources = errors.New("must be 1 to 64 names of 1 to 128 visible ASCII characters each; omit it for no limit")

// ParseResources returns the Resources with these names; duplicates count once. For nil it returns
// the zero Resources. The error states the rule for names.
func ParseResources(names []string) (Resources, error) {
	if names == nil {
		return Resources{}, nil
	}
	if len(names) == 0 || len(names) > maxResources || slices.ContainsFunc(names, func(name string) bool { return !IsResource(name) }) {
		return Resources{}, errResources
	}
	return Resources{strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), " ")}, nil
}

// IsResource reports whether name is a valid name of a resource: 1 to 128 visible ASCII characters.
func IsResource(name string) bool {
	return name != "" && len(name) <= maxResourceLen && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}

// IsZero reports whether r is not a limit.
func (r Resources) IsZero() bool { return r.names == "" }

// Names returns the names in ascending order, or nil if r is not a limit.
func (r Resources) Names() []string {
	if r.IsZero() {
		return nil
	}
	return strings.Split(r.names, " ")
}

// String returns the names, separated by spaces.
func (r Resources) String() string { return r.names }

// Equal reports whether r == other.
func (r Resources) Equal(other Resources) bool { return r == other }

// Allows reports whether r is not a limit or contains the resource. The empty name stands for no
// resource in particular, which a limit never contains.
func (r Resources) Allows(resource string) bool {
	if r.IsZero() {
		return true
	}
	for name := range strings.SplitSeq(r.names, " ") {
		if name == resource {
			return true
		}
	}
	return false
}

// Covers reports whether other is within r: r is not a limit, or other is a limit and r contains
// all of its names.
func (r Resources) Covers(other Resources) bool {
	if r.IsZero() || other.IsZero() {
		return r.IsZero()
	}
	for name := range strings.SplitSeq(other.names, " ") {
		if !r.Allows(name) {
			return false
		}
	}
	return true
}

// missing returns the names of other that r does not allow.
func (r Resources) missing(other Resources) []string {
	return slices.DeleteFunc(other.Names(), r.Allows)
}

// A ResourceError refuses a caller that is limited to other resources. It wraps [ErrForbidden].
type ResourceError struct {
	Required []string // the target's resources that the caller lacks; empty if the target has no limit
}

func (e *ResourceError) Error() string { return ErrForbidden.Error() }

func (e *ResourceError) Unwrap() error { return ErrForbidden }

// WithinResources returns a [*ResourceError] if the caller is limited to resources and the target
// is not within them. The API calls it before each call to [Authorize] with a target, so that a
// host's policy cannot lift the limit.
func WithinResources(caller Principal, target *Target) error {
	if target == nil || caller.LimitedTo.Covers(target.Resources) {
		return nil
	}
	return &ResourceError{caller.LimitedTo.missing(target.Resources)}
}

// Resource names the resource of a request, for keys that are limited to resources. Such a key is
// refused if of returns a resource outside the key's limit, or "" for none. of is called only for
// such keys.
func Resource(of func(*http.Request) string) RouteOption {
	return func(r *route) { r.resource = of }
}

// AnyResource admits keys that are limited to resources, although the route names no resource. The
// handler must check [Principal.Allows] for each resource that it shows or changes. Use it for
// routes that return lists.
func AnyResource() RouteOption { return func(r *route) { r.anyResource = true } }

// admits reports whether the route admits the caller's key for the request's resource.
func (of *route) admits(p *Principal, r *http.Request) (resource string, ok bool) {
	if of.anyResource || p.LimitedTo.IsZero() {
		return "", true
	}
	if of.resource != nil {
		resource = of.resource(r)
	}
	return resource, p.Allows(resource)
}

// WriteOutside responds with 403 FORBIDDEN if the key is limited to other resources. required lists
// the resources that the key would need; clients can read them in the error's field
// requiredResources and in WWW-Authenticate: error="insufficient_scope", resource="bucket-1
// bucket-2". Names that are not valid are left out.
func (a *Authenticator) WriteOutside(w http.ResponseWriter, required ...string) {
	required = slices.DeleteFunc(slices.Clone(required), func(name string) bool { return !IsResource(name) })
	body := errorBody{Code: CodeForbidden, Message: "This API key is limited to resources, and the request is not limited to any of them."}
	if len(required) > 0 {
		list := strings.Join(required, " ")
		body.Message, body.RequiredResources = "This API key is limited to resources that do not include "+list+".", required
		a.challenge.set(w, `, error="insufficient_scope", resource="`+quoting.Replace(list)+`"`)
	}
	writeError(w, http.StatusForbidden, body)
}

// quoting escapes a quoted-string of a header.
var quoting = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
