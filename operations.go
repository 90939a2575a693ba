package storageapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/storageapi/storageapi/apierr"
	"github.com/storageapi/storageapi/apikeys"
	"github.com/storageapi/storageapi/audit"
	"github.com/storageapi/storageapi/auth"
	"github.com/storageapi/storageapi/internal/httpapi"
	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/webhooks"
)

// Operations returns the routes for the host's operators. Serve them on a private port, never on
// the public one: they give full access to all accounts, and their only authentication is a wrapper
// that the host may add. Package cli has commands for them.
//
//	GET    /ready, /live             probes: see [Handler.HealthHandler]
//	GET    /stats                    figures, as [webhooks.Stats]
//	GET    /backup                   a copy of the file: see [Handler.Backup]
//	GET    /webhooks?state=failing   all failing webhooks; or off, held
//	POST   /release                  [webhooks.WebhookService.ReleaseAll]
//	GET    /keys                     the key of the value in Api-Key: see [apikeys.KeyService.Lookup]
//	DELETE /keys                     revokes that value: see [apikeys.KeyService.RevokeValue]
//	GET    /accounts                 the sizes of all accounts
//	GET    /accounts/{account}       see [Handler.ExportAccount]
//	DELETE /accounts/{account}       see [Handler.Erase]
//	       /accounts/{account}/v2/…  the API of the account, for any change and without a key
//
// No route verifies the file of a running store: to find damage, take a backup and verify that, with
// boltops.Verify or the command verify. This also proves the backup, and its reads do not slow the
// host.
//
// Lists are JSON objects on separate lines. An interrupted response ends with a broken connection.
// The audit log attributes changes to the actor in the context of the request, see
// [audit.WithActor]; the default is the host.
//
// Requests from web pages are refused. A web page could also resolve its own host name to this
// server (DNS rebinding), so a request to a host name with a dot is refused, too, unless hosts
// lists the name. Requests to an IP address are accepted.
func (h *Handler) Operations(t HealthThresholds, hosts ...string) http.Handler {
	o := &operations{h: h}
	mux := http.NewServeMux()
	mux.Handle("GET /ready", h.HealthHandler(t))
	mux.Handle("GET /live", h.LivenessHandler(t))
	mux.HandleFunc("GET /stats", o.stats)
	mux.HandleFunc("GET /backup", func(w http.ResponseWriter, r *http.Request) {
		stream(w, "application/octet-stream", func(w io.Writer) error {
			_, err := h.Backup(r.Context(), w)
			return err
		})
	})
	mux.HandleFunc("GET /webhooks", o.webhooks)
	mux.HandleFunc("POST /release", func(w http.ResponseWriter, r *http.Request) {
		released, err := h.Webhooks.ReleaseAll(r.Context())
		reply(w, map[string]int{"released": released}, err)
	})
	mux.HandleFunc("GET /keys", o.value(h.Keys.Lookup))
	mux.HandleFunc("DELETE /keys", o.value(h.Keys.RevokeValue))
	mux.HandleFunc("GET /accounts", func(w http.ResponseWriter, r *http.Request) {
		stream(w, ndjson, lines(h.AllAccounts(r.Context())))
	})
	mux.HandleFunc("GET /accounts/{account}", func(w http.ResponseWriter, r *http.Request) {
		stream(w, ndjson, func(w io.Writer) error { return h.ExportAccount(r.Context(), r.PathValue("account"), w) })
	})
	mux.HandleFunc("DELETE /accounts/{account}", func(w http.ResponseWriter, r *http.Request) {
		receipt, err := h.Erase(r.Context(), r.PathValue("account"))
		reply(w, receipt, err)
	})
	mux.Handle("/accounts/{account}/v2/", o.api())
	return notForPages(mux, hosts)
}

// notForPages refuses requests from web pages in an operator's browser.
func notForPages(next http.Handler, hosts []string) http.Handler {
	next = http.NewCrossOriginProtection().Handler(next) // for browsers without Sec-Fetch-Site
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		switch {
		case site != "" && site != "none":
			auth.WriteError(w, http.StatusForbidden, auth.CodeForbidden, "Web pages cannot use the routes for operators.")
		case !isPrivateName(r.Host) && !slices.Contains(hosts, r.Host):
			auth.WriteError(w, http.StatusForbidden, auth.CodeForbidden, "The routes for operators are not served at this host name: use an address, or name it in Operations.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isPrivateName reports whether a Host header names an address, or a name that no public DNS server
// can resolve.
func isPrivateName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost")
}

const ndjson = "application/x-ndjson"

type operations struct{ h *Handler }

// reply answers with a JSON object, or with err.
func reply(w http.ResponseWriter, result any, err error) {
	switch {
	case errors.Is(err, apierr.ErrNotFound):
		auth.WriteError(w, http.StatusNotFound, auth.CodeNotFound, err.Error())
	case errors.Is(err, ErrNoBackup):
		auth.WriteError(w, http.StatusConflict, auth.CodeConflict, err.Error())
	case errors.Is(err, auth.ErrUnavailable), errors.Is(err, auth.ErrInterrupted):
		auth.WriteError(w, http.StatusServiceUnavailable, auth.CodeUnavailable, err.Error())
	case err != nil:
		auth.WriteError(w, http.StatusInternalServerError, auth.CodeInternal, err.Error())
	default:
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_ = json.NewEncoder(w).Encode(result) // an error means that the client is gone
	}
}

// A counter counts the bytes written to w.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// stream answers with the output of write. If write fails halfway, stream breaks the connection.
func stream(w http.ResponseWriter, contentType string, write func(io.Writer) error) {
	w.Header().Set("Content-Type", contentType)
	written := &counter{w: w}
	if err := write(written); err != nil {
		if written.n > 0 {
			panic(http.ErrAbortHandler)
		}
		reply(w, nil, err)
	}
}

// lines returns a function that writes each item as a line of JSON.
func lines[T any](items iter.Seq2[T, error]) func(io.Writer) error {
	return func(w io.Writer) error {
		encoder := json.NewEncoder(w)
		for item, err := range items {
			if err == nil {
				err = encoder.Encode(item)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func (o *operations) stats(w http.ResponseWriter, r *http.Request) {
	s, err := o.h.Webhooks.Stats(r.Context())
	var halted *string
	if s.Halted != nil {
		text := s.Halted.Error()
		halted = &text
	}
	reply(w, struct {
		Pending      int     `json:"pending"`
		Held         int     `json:"held"`
		OldestDue    float64 `json:"oldestDueSeconds"`
		LongestWait  float64 `json:"longestWaitSeconds"`
		InFlight     int     `json:"inFlight"`
		IdleConns    int     `json:"idleConns"`
		MaxIdleConns int     `json:"maxIdleConns"`
		Delivered    uint64  `json:"delivered"`
		Failed       uint64  `json:"failed"`
		Dead         uint64  `json:"dead"`
		FileBytes    int64   `json:"fileBytes"`
		FreeBytes    int64   `json:"freeBytes"`
		Halted       *string `json:"halted"`
	}{
		s.Pending, s.Held, s.OldestDue.Seconds(), s.LongestWait.Seconds(), s.InFlight, s.IdleConns, s.MaxIdleConns,
		s.Delivered, s.Failed, s.Dead, s.FileBytes, s.FreeBytes, halted,
	}, err)
}

// An operatedWebhook is a webhook in a list of all accounts.
type operatedWebhook struct {
	Account      string     `json:"account"`
	ID           string     `json:"id"`
	URL          string     `json:"url"`
	OffReason    string     `json:"offReason,omitempty"`
	OffAt        *time.Time `json:"offAt,omitempty"`
	FailingSince *time.Time `json:"failingSince,omitempty"`
}

func (o *operations) webhooks(w http.ResponseWriter, r *http.Request) {
	var all iter.Seq2[webhooks.Webhook, error]
	switch state := r.FormValue("state"); state {
	case "failing":
		all = o.h.Webhooks.AllFailing(r.Context())
	case "off":
		all = o.h.Webhooks.AllOff(r.Context())
	case "held":
		all = o.h.Webhooks.AllHeld(r.Context())
	default:
		auth.WriteInvalid(w, "state", "must be failing, off or held")
		return
	}
	stream(w, ndjson, lines(func(yield func(operatedWebhook, error) bool) {
		for hook, err := range all {
			if !yield(operatedWebhook{hook.Account, hook.ID, hook.URL, string(hook.OffReason), shown(hook.OffAt), shown(hook.FailingSince)}, err) {
				return
			}
		}
	}))
}

// value returns a handler that calls do with the value of a key in the Api-Key header.
func (o *operations) value(do func(context.Context, string) (apikeys.Value, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := do(r.Context(), r.Header.Get(auth.HeaderName))
		reply(w, struct {
			Account   string     `json:"account"`
			ID        string     `json:"id"`
			Name      string     `json:"name"`
			Hint      string     `json:"hint"`
			Replaced  bool       `json:"replaced"`
			Live      bool       `json:"live"`
			ExpiresAt *time.Time `json:"expiresAt"`
		}{v.Key.Account, v.Key.ID, v.Key.Name, v.Hint, v.Replaced, v.Live, shown(v.ExpiresAt)}, err)
	}
}

type accountKey struct{}

// An operator is a Verifier for requests below /accounts/{account}: it grants all scopes in that
// account, and ignores the key.
type operator struct{ all scopes.Set }

func (o operator) Verify(ctx context.Context, _ string) (auth.Principal, error) {
	account, ok := ctx.Value(accountKey{}).(string)
	if !ok {
		return auth.Principal{}, auth.ErrUnauthorized
	}
	return auth.Principal{Account: account, Scopes: o.all}, nil
}

// api returns the API of the account in the path.
func (o *operations) api() http.Handler {
	config := o.h.http
	config.Prefix = httpapi.DefaultPrefix
	config.Authorize = func(context.Context, auth.Principal, auth.Access) error { return nil }
	config.Attribute = func(r *http.Request, _ audit.Actor) context.Context {
		return o.h.attribute(r, audit.ActorFrom(r.Context()))
	}
	var err error
	if config.Auth, err = auth.New(operator{o.h.Keys.Scopes().All()}, auth.Config{Logger: config.Logger}); err != nil {
		panic(err) // impossible: the Handler was made with the same values
	}
	api, err := httpapi.New(config)
	if err != nil {
		panic(err) // impossible: see above
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, escaped, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/accounts/"), "/")
		path, err := url.PathUnescape("/" + escaped)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		inner := r.Clone(context.WithValue(r.Context(), accountKey{}, r.PathValue("account")))
		inner.URL.Path, inner.URL.RawPath = path, "/"+escaped
		inner.Header.Set(auth.HeaderName, "operator") // the API requires one; operator ignores it
		api.ServeHTTP(w, inner)
	})
}
