// Package notices records changes to the keys and webhooks of accounts, and who made them. The
// records are passed to the host's function and form the audit trail.
//
//	page, err := api.Notices.List(ctx, "acct_1", notices.Query{Target: notices.Target{Kind: notices.TargetKey, ID: key.ID}, Limit: 50})
//
// A [Notice] is stored in the same step as its change: no change without its notice, and no notice
// without its change. It names the changed fields, but never holds their values.
//
// The actor comes with the context of a call: see [WithActor] and [WithRequest]. The HTTP API and
// the dashboard set both. A call without them is attributed to the host.
package notices
