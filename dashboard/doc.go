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
// [Config.Account] returns, for every request, the account that the pages show. A request
// without an account is sent to [Config.SignIn], or answered 403, before anything else
// happens. A user with the account can do all that the pages offer, unless [Config.May] says
// otherwise, for example for people who may only look: the policy for API keys
// (storageapi.Config.Authorize) does not apply.
//
// # Secrets
//
// The value of a key and the secret of a webhook are only in the response to the POST
// that created them: not in a URL, a cookie or a cache. A form that is sent again, by a
// reload or the back button, creates and rotates nothing and shows no value.
//
// # In the browser
//
// Pages are plain HTML and work without JavaScript, which adds copying, live updates and
// confirmations in place. Everything that they load is embedded in the program. The
// Content-Security-Policy allows nothing else and nothing inline; requests from other
// origins that change something are refused ([http.CrossOriginProtection]); no page can
// be framed or stored.
package dashboard
