// Package audit records changes to the keys and webhooks of accounts, and who made them. The
// records are passed to the host's function and form the audit log.
//
//	page, err := api.Audit.List(ctx, "acct_1", audit.Query{Target: audit.Target{Kind: audit.TargetKey, ID: key.ID}, Limit: 50})
//
// An [Entry] is stored in the same transaction as its change: no change without its entry, and no
// entry without its change. It names the changed fields, but never holds their values.
//
// The actor comes with the context of a call: see [WithActor] and [WithRequest]. The HTTP API and
// the dashboard set both. A call without them is attributed to the host.
package audit
