package dashboard

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/auth"
)

// A keyFormView is the template data for a form that creates or edits a key.
type keyFormView struct {
	Form     form
	Problem  string // error that concerns the form as a whole
	Nonce    string
	Areas    []areaView
	Expiries []choice
	Tomorrow string // the earliest date that users can select

	Key *keyView // the key to edit
}

// expiries are the expiries that users can choose. The form also has the choice "date".
var expiries = []choice{
	{"never", "Never"},
	{"30", "In 30 days"},
	{"90", "In 90 days"},
	{"365", "In a year"},
}

// offeredExpiries returns the expiries that the service allows.
func (p *pages) offeredExpiries() []choice {
	longest := p.keys.MaxLifetime()
	if longest == 0 {
		return expiries
	}
	list := []choice{{"never", "As late as possible"}}
	for _, c := range expiries[1:] {
		if days, _ := strconv.Atoi(c.Value); time.Duration(days+1)*24*time.Hour <= longest {
			list = append(list, c)
		}
	}
	return list
}

func (p *pages) newKey(c *call) (response, error) {
	expiry := "90"
	if !slices.ContainsFunc(p.offeredExpiries(), func(c choice) bool { return c.Value == expiry }) {
		expiry = "never"
	}
	f := newForm(map[string][]string{"expiry": {expiry}})
	if id := c.URL.Query().Get("like"); id != "" {
		if err := p.fillLike(c, f, id); err != nil {
			return response{}, err
		}
	}
	return p.keyForm(f, newNonce(), "", http.StatusOK), nil
}

// fillLike fills the form with a key's settings, and the scopes that it has used recently.
func (p *pages) fillLike(c *call, f form, id string) error {
	if err := p.permit(c.Request, auth.ReadKeys); err != nil {
		return err
	}
	key, err := p.keys.Get(c.Context(), c.account, id)
	if err != nil {
		return err
	}
	f.Values["name"], f.Values["scopes"] = []string{key.Name}, p.usedScopes(&key)
	f.Values["resources"] = []string{strings.Join(key.Resources.Names(), " ")}
	f.Values["networks"] = []string{strings.Join(key.AllowedNetworks.Names(), " ")}
	if key.RateLimit > 0 {
		f.Values["rate"] = []string{strconv.FormatUint(key.RateLimit, 10)}
	}
	return nil
}

func (p *pages) keyForm(f form, nonce, problem string, status int) response {
	view := p.keyFormView(f, problem)
	view.Nonce, view.Areas = nonce, p.areas()
	return response{status: status, page: "key-new", title: "Create API key", tab: "keys", data: view}
}

func (p *pages) keyFormView(f form, problem string) keyFormView {
	return keyFormView{Form: f, Problem: problem, Expiries: p.offeredExpiries(), Tomorrow: p.now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)}
}

// A keyMadeView is the template data for the page of a key that was just created or rotated.
type keyMadeView struct {
	Key     keyView
	Value   string // empty if the same form was sent before
	Rotated bool
	Command string // shell command that sends a request with the value
}

func (p *pages) createKey(c *call) (response, error) {
	f := newForm(c.PostForm)
	nonce := c.PostForm.Get("nonce")
	params := p.readKey(f)
	if len(f.Errors) > 0 {
		return p.keyForm(f, nonce, "", http.StatusUnprocessableEntity), nil
	}
	params.IdempotencyKey = nonce
	key, token, err := p.keys.Create(c.Context(), c.account, params)
	var rule *apierr.ValidationError
	switch {
	case errors.Is(err, apierr.ErrLimit):
		return p.keyForm(f, nonce, "This account has reached its limit of API keys. Revoke one you no longer need, then try again.", http.StatusConflict), nil
	case errors.Is(err, apierr.ErrIdempotencyKeys):
		return p.keyForm(f, nonce, "Too many keys were created for this account in the last 24 hours. Try again later.", http.StatusTooManyRequests), nil
	case errors.Is(err, apierr.ErrIdempotencyMismatch), errors.Is(err, apierr.ErrCreatedThenDeleted):
		return p.keyForm(f, newNonce(), "This form has already created a key. Submit it again to create another one.", http.StatusConflict), nil
	case errors.As(err, &rule): // the nonce is invalid, or the expiry has passed meanwhile
		return p.keyForm(f, newNonce(), "No key was created. Submit the form again.", http.StatusUnprocessableEntity), nil
	case err != nil:
		return response{}, err
	}
	return p.keyMade(c, &key, token, false), nil
}

// keyMade shows a key's new value. After a reload the browser shows the key's page.
func (p *pages) keyMade(c *call, key *apikeys.Key, token apikeys.Token, rotated bool) response {
	view := keyMadeView{p.viewKey(key), token.Reveal(), rotated, ""}
	view.Command = "curl " + quoted(p.apiAddress(c.Request)+"/api-keys/self") + " -H " + quoted(auth.HeaderName+": "+view.Value)
	return response{page: "key-made", title: key.Name, tab: "keys", replace: "api-keys/" + key.ID, data: view}
}

// apiAddress returns the address of the API, including its prefix. By default it uses the Origin
// header that the browser sends with a form, because proxies may have changed the rest of the
// request.
func (p *pages) apiAddress(r *http.Request) string {
	if p.apiURL != "" {
		return p.apiURL
	}
	origin := r.Header.Get("Origin")
	if !isAddress(origin) {
		origin = "https://" + r.Host
	}
	return origin + p.apiPrefix
}

// quoted quotes a word for use in a shell command.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// readKey returns the parameters in the form, and records errors of its fields.
func (p *pages) readKey(f form) apikeys.CreateParams {
	params := apikeys.CreateParams{Name: strings.TrimSpace(f.Values.Get("name")), Resources: f.resources(), ExpiresAt: p.readExpiry(f)}
	params.AllowedNetworks = strings.FieldsFunc(f.Values.Get("networks"), func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	rate := strings.TrimSpace(f.Values.Get("rate"))
	var unknown, notWhole error
	if rate != "" {
		params.RateLimit, notWhole = strconv.ParseUint(rate, 10, 64)
	}
	params.Scopes, unknown = p.keys.Scopes().ParseSet(f.Values["scopes"])
	for _, wrong := range p.keys.Validate(params) {
		f.Errors[keyFields[wrong.Field]] = sentence(wrong.Reason)
	}
	if notWhole != nil || rate != "" && params.RateLimit == 0 {
		f.Errors["rate"] = "Enter a whole number, or leave it empty."
	}
	if params.Name == "" {
		f.Errors["name"] = "Enter a name that says what the key is for."
	}
	if unknown != nil || params.Scopes.IsEmpty() {
		f.Errors["scopes"] = "Select at least one scope."
	}
	return params
}

// keyFields maps field names of package apikeys to field names of the form.
var keyFields = map[string]string{
	"name": "name", "scopes": "scopes", "resources": "resources", "expiresAt": "date", "labels": "labels",
	"allowedNetworks": "networks", "rateLimit": "rate",
}

// readExpiry returns the expiry entered in the form, and records errors in its fields.
func (p *pages) readExpiry(f form) time.Time {
	expiry := f.Values.Get("expiry")
	switch {
	case expiry == "never":
	case expiry == "date":
		at, err := time.Parse(time.DateOnly, f.Values.Get("date"))
		if err != nil {
			f.Errors["date"] = "Select the date on which the key expires."
		}
		return at
	case !slices.ContainsFunc(expiries, func(c choice) bool { return c.Value == expiry }):
		f.Errors["expiry"] = "Select when the key expires."
	default:
		// Rounding to midnight gives the same expiry when the form is sent again, so the
		// idempotency key matches.
		days, _ := strconv.Atoi(expiry)
		return p.now().UTC().Truncate(24*time.Hour).AddDate(0, 0, days+1)
	}
	return time.Time{}
}
