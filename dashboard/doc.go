// Package dashboard is the settings pages of a storage service: API keys (SPEC
// section 5) and webhooks. A host mounts them behind its own login:
//
//	settings, err := dashboard.New(dashboard.Config{
//		API: api,
//		Account: func(r *http.Request) (string, error) { return sessions.Account(r) },
//	})
//	mux.Handle("/settings/", settings)
//
// # Who is looking
//
// [Config.Account] decides, on every request, whose keys and webhooks are shown. A
// request without an account is answered 403 before anything else happens. Whoever
// has the account may do all that the pages offer: the policy for API keys
// (storageapi.Config.Authorize) is not asked.
//
// # What is shown once
//
// The value of a key and the secret of a webhook are in the answer to the POST that
// made them, and nowhere else: not in a URL, a cookie or a cache. A form that is sent
// again, by a reload or the back button, makes and rotates nothing more and shows no
// value.
//
// # In the browser
//
// Pages are plain HTML and work without JavaScript, which adds copying, live updates
// and confirmations in place. All that they load is embedded in the program and served
// beside them. The Content-Security-Policy allows nothing else and nothing inline;
// requests that change something from other origins are refused
// ([http.CrossOriginProtection]); no page may be framed or stored.
package dashboard
