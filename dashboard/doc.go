// Package dashboard serves the settings pages of a storage service, which manage API keys
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
// For every request, [Config.Account] returns the account to show. A request without an account has
// no effect; it is answered with a redirect to [Config.SignIn] or with 403. A user of the account
// can do everything that the pages offer, unless [Config.May] restricts the user, for example to
// viewing. storageapi.Config.Authorize, the policy for API keys, does not apply.
//
// # Secrets
//
// The value of a key and the secret of a webhook appear only in the response to the POST that
// created them, and never in a URL, a cookie or a cache. If the browser sends a form again, after a
// reload or the back button, the dashboard creates nothing, rotates nothing and shows no value.
//
// # In the browser
//
// Pages are plain HTML and work without JavaScript, which adds copy buttons, live updates and
// confirmation dialogs. All assets are embedded in the program. The Content-Security-Policy allows
// no other sources and no inline code. Requests from other origins that would change something are
// rejected ([http.CrossOriginProtection]). Browsers can neither frame nor store the pages.
package dashboard
