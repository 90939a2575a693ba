// Package notices tells what happened to the keys and webhooks of accounts, and who did it: to
// the host's function, and to those who read the audit trail.
//
//	page, err := api.Notices.List(ctx, "acct_1", notices.Query{Target: notices.Target{Kind: notices.TargetKey, ID: key.ID}, Limit: 50})
//
// A [Notice] is stored in the same step as the change that it tells of: there is no change
// without its notice, and no notice without its change. It names the fields that were
// changed, and never holds their values.
//
// Who acts comes with the context of a call: see [WithActor] and [WithRequest]. The HTTP
// API and the dashboard set both. A call without either is the host's own.
package notices
