// Package alerts decides, from a host's reports of balances, usage and expiring files, which of the
// events in docs/spec.md, section 6, to publish. A host can report at any rate:
//
//	hooks, err := webhooks.New(store, webhooks.Config{Events: alerts.Events()})
//	reports, err := alerts.New(store, hooks, alerts.Config{})
//	err = reports.ReportBalance(ctx, "acct_1", balance)
//
// storageapi.NewHandler makes both services.
//
//   - [AlertService.ReportBalance] notifies each webhook once when the balance falls below its
//     threshold.
//   - [AlertService.ReportBandwidth] and [AlertService.ReportTransactions] notify once per period
//     when a limit is approaching, and once when it is reached.
//   - [AlertService.ReportFiles] notifies once for each file and each of [Config.FileLeads] before
//     it expires; with [Config.Files] the service lists the files itself.
//
// The record of each notification is stored in the same transaction as its event; file events have
// deduplication keys. Therefore no alert is lost or repeated if a process is killed, and several
// processes can share a store. A report that changes nothing writes nothing.
//
// A host that makes these decisions itself publishes the payloads, such as [BalanceLow], with
// [webhooks.WebhookService.Publish].
//
// Authors of stores implement [driver.AlertStore].
package alerts
