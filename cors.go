package storageapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/storageapi/storageapi/auth"
)

// A CORSConfig says which programs in browsers may call the API, see [CORS].
type CORSConfig struct {
	// Origins are those of the pages whose programs may call, as browsers send them:
	// "https://app.example.com", with the port if it is not the scheme's. "*" alone: any
	// page. At least one.
	Origins []string

	// RequestHeaders and ResponseHeaders are what the host's own routes take and answer, in
	// addition to [RequestHeaders] and [ResponseHeaders].
	RequestHeaders, ResponseHeaders []string

	// MaxAge is how long browsers may go without asking again. Raise it once the Origins
	// are settled; browsers cap it, some at two hours. Default: 10 minutes.
	MaxAge time.Duration
}

// RequestHeaders returns the names of the headers that the API takes and that a browser asks
// about before it sends them: for CORS middleware other than [CORS].
func RequestHeaders() []string {
	return []string{auth.HeaderName, "Content-Type", "Idempotency-Key", "If-Match"}
}

// ResponseHeaders returns the names of the headers that the API answers with and that
// programs in a browser can read only if they are exposed: for CORS middleware other than
// [CORS].
func ResponseHeaders() []string {
	return []string{"Allow", "ETag", "Location", "Retry-After", "WWW-Authenticate", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}
}

// CORS returns a handler that lets programs in browsers, on pages of config.Origins, call
// next: the Handler, or better all that the host serves, so that its own routes can be called
// as well. It answers the browser's question before a request (a preflight, which carries no
// API key) with 204, and adds what the browser wants to see to all answers. Requests of other
// origins go through to next as they are: a browser keeps the answer from the page. Cookies
// are not allowed to be sent along.
//
// An API key that is in a page is known to all who can open that: give it few scopes and a
// near expiry. An error names the field of config that is wrong.
func CORS(config CORSConfig, next http.Handler) (http.Handler, error) {
	if next == nil {
		return nil, errors.New("storageapi: CORS: nil handler")
	}
	if len(config.Origins) == 0 {
		return nil, errors.New("storageapi: CORSConfig.Origins must name at least one origin")
	}
	anyOrigin := slices.Equal(config.Origins, []string{"*"})
	for _, origin := range config.Origins {
		if !anyOrigin && !isOrigin(origin) {
			return nil, fmt.Errorf(`storageapi: CORSConfig.Origins must be as browsers send them, such as "https://app.example.com", or "*" alone: %q`, origin)
		}
	}
	for _, name := range slices.Concat(config.RequestHeaders, config.ResponseHeaders) {
		if name == "" || strings.ContainsFunc(name, notInHeaderName) {
			return nil, fmt.Errorf("storageapi: CORSConfig: not the name of a header: %q", name)
		}
	}
	if config.MaxAge < 0 {
		return nil, errors.New("storageapi: CORSConfig.MaxAge must not be negative")
	}
	if config.MaxAge == 0 {
		config.MaxAge = 10 * time.Minute
	}
	c := cors{
		next:    next,
		any:     anyOrigin,
		origins: slices.Clone(config.Origins),
		allowed: strings.Join(append(RequestHeaders(), config.RequestHeaders...), ", "),
		exposed: strings.Join(append(ResponseHeaders(), config.ResponseHeaders...), ", "),
		maxAge:  strconv.FormatInt(int64(config.MaxAge/time.Second), 10),
	}
	return &c, nil
}

// isOrigin reports whether s is what browsers send as Origin.
func isOrigin(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme != "" && u.Host != "" && s == u.Scheme+"://"+u.Host && s == strings.ToLower(s) &&
		!strings.ContainsFunc(s, func(r rune) bool { return r > '~' }) && // a name in Unicode is sent as xn--…
		!strings.HasSuffix(s, ":") && !strings.Contains(s, "*") && !(u.Scheme == "https" && u.Port() == "443") && !(u.Scheme == "http" && u.Port() == "80")
}

// notInHeaderName reports whether a character cannot be in the name of a header.
func notInHeaderName(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}*`, r)
}

type cors struct {
	next             http.Handler
	any              bool // origin
	origins          []string
	allowed, exposed string // headers
	maxAge           string // seconds
}

const corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"

func (c *cors) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header, origin := w.Header(), r.Header.Get("Origin")
	if c.any {
		header.Set("Access-Control-Allow-Origin", "*")
	} else {
		header.Add("Vary", "Origin")
		if !slices.Contains(c.origins, origin) {
			c.next.ServeHTTP(w, r)
			return
		}
		header.Set("Access-Control-Allow-Origin", origin)
	}
	if r.Method == http.MethodOptions && origin != "" && r.Header.Get("Access-Control-Request-Method") != "" {
		header.Set("Access-Control-Allow-Methods", corsMethods)
		header.Set("Access-Control-Allow-Headers", c.allowed)
		header.Set("Access-Control-Max-Age", c.maxAge)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	header.Set("Access-Control-Expose-Headers", c.exposed)
	c.next.ServeHTTP(w, r)
}
