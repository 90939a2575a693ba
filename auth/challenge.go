package auth

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"github.com/storageapi/storageapi/scopes"
)

const (
	bearerScheme = "Bearer"
	maxRealm     = 64
)

// A challenge describes how the API asks for a key: which schemes it accepts, and the text of a
// 401.
type challenge struct {
	bearer  bool
	schemes []string // values of WWW-Authenticate
	message string
}

func newChallenge(config *Config) (challenge, error) {
	realm := cmp.Or(config.Realm, "storageapi")
	if len(realm) > maxRealm || strings.ContainsFunc(realm, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
		return challenge{}, errors.New(`Realm must be at most 64 ASCII characters without control characters, quotes and backslashes`)
	}
	c := challenge{
		bearer:  config.Bearer,
		schemes: []string{`ApiKey realm="` + realm + `"`},
		message: "The Api-Key header is missing, or the key in it is invalid or expired.",
	}
	if c.bearer {
		c.schemes = append(c.schemes, bearerScheme+` realm="`+realm+`"`)
		c.message = "The key is missing, invalid or expired. Send it in one header: Api-Key, or Authorization with the scheme Bearer."
	}
	return c, nil
}

// set sets WWW-Authenticate and appends the parameters in more after each realm.
func (c *challenge) set(w http.ResponseWriter, more string) {
	header := w.Header()
	header.Del("WWW-Authenticate")
	for _, scheme := range c.schemes {
		header.Add("WWW-Authenticate", scheme+more)
	}
}

// Token returns the key in a request, for [apikeys.KeyService.Credential] and similar methods. It
// returns "" unless the request has exactly one key: in the Api-Key header or, with
// [Config.Bearer], in the Authorization header. Token does not verify the key.
func (a *Authenticator) Token(r *http.Request) string {
	token, _ := a.challenge.token(r)
	return token
}

// token returns the key in a request. ok is false unless the request has exactly one.
func (c *challenge) token(r *http.Request) (token string, ok bool) {
	values := r.Header[HeaderName]
	if !c.bearer {
		if len(values) != 1 {
			return "", false
		}
		return values[0], true
	}
	n := len(values)
	if n == 1 {
		token = values[0]
	}
	for _, credentials := range r.Header["Authorization"] {
		scheme, value, _ := strings.Cut(credentials, " ")
		if strings.EqualFold(scheme, bearerScheme) {
			token = strings.TrimLeft(value, " ")
			n++
		}
	}
	if n != 1 {
		return "", false
	}
	return token, true
}

// WriteUnauthorized answers 401 UNAUTHORIZED. The response is byte-identical for every kind of
// invalid key, and for a missing one.
func (a *Authenticator) WriteUnauthorized(w http.ResponseWriter) {
	a.challenge.set(w, "")
	WriteError(w, http.StatusUnauthorized, CodeUnauthorized, a.challenge.message)
}

// WriteForbidden answers 403 FORBIDDEN. required are scopes that would allow the request; it is
// empty if no scopes would. Programs find these scopes in the error's field requiredScopes and, as
// in RFC 6750, section 3, in WWW-Authenticate: error="insufficient_scope", scope="files:read
// files:write".
func (a *Authenticator) WriteForbidden(w http.ResponseWriter, message string, required scopes.Set) {
	body := errorBody{Code: CodeForbidden, Message: message}
	if !required.IsEmpty() {
		body.RequiredScopes = required.Names()
		a.challenge.set(w, `, error="insufficient_scope", scope="`+required.String()+`"`)
	}
	writeError(w, http.StatusForbidden, body)
}
