// Package dashboard serves the settings pages of a storage service: API keys
// (docs/spec.md, section 5) and webhooks. A host mounts them behind its own login:
//
//	settings, err := dashboard.New(dashboard.Config{
//		API: api,
//		Account: func(r *http.Request) (string, error) { return sessions.Account(r) },
//		SignIn:  "/login", SignOut: "/logout", Home: "/",
//	})
//	mux.Handle("/settings/", settings)
//
// # Accounts
//
// For every request, [Config.Account] returns the account to show. A request without an account
// is redirected to [Config.SignIn], or answered with 403, before anything else happens. A user of
// the account can do everything that the pages offer, unless [Config.May] restricts it, for
// example to viewing. storageapi.Config.Authorize, the policy for API keys, does not apply.
//
// # Secrets
//
// The value of a key and the secret of a webhook appear only in the response to the POST that
// created them, and never in a URL, a cookie or a cache. A form that is sent again, by a reload or
// the back button, creates nothing, rotates nothing and shows no value.
//
// # In the browser
//
// Pages are plain HTML and work without JavaScript, which adds copying, live updates and
// confirmations in place. All their assets are embedded in the program. The
// Content-Security-Policy allows no other source and nothing inline. Requests from other origins
// that change something are rejected ([http.CrossOriginProtection]). No page can be framed or
// stored.
package dashboard
