// Package promstorage exports the metrics of a storageapi.Handler to Prometheus.
//
//	metrics := promstorage.New()
//	api, err := storageapi.NewHandler(storageapi.Config{Path: "storage.db", Observe: metrics.Observer()})
//	// …
//	metrics.SetStats(api.Webhooks.Stats)
//	prometheus.MustRegister(metrics)
//
// It is a separate module, so that only hosts that import it depend on the Prometheus client.
//
// # Metrics
//
// Counters and histograms count the calls of [Collector.Observer]:
//
//	storageapi_authentication_duration_seconds  outcome             histogram: verifying the key of a request
//	storageapi_publish_duration_seconds         result              histogram: a call of the store that stores events
//	storageapi_published_events_total           event_type
//	storageapi_published_bytes_total            event_type          of their bodies
//	storageapi_published_deliveries_total
//	storageapi_claim_duration_seconds           result              histogram: a call of the store that claims deliveries
//	storageapi_claimed_deliveries_total
//	storageapi_attempts_total                   event_type result class status
//	storageapi_attempt_duration_seconds         result              histogram: from the look-up of the name to the response
//	storageapi_delivery_delay_seconds                               histogram: from the event's timestamp to its arrival
//	storageapi_settle_duration_seconds          result              histogram: a call of the store that records results
//	storageapi_settled_deliveries_total
//	storageapi_settled_stale_total                                  results dropped because another worker has the delivery
//	storageapi_commit_duration_seconds          result              histogram: a commit of store/bolt
//	storageapi_commit_steps_total                                   calls of the store that share the commits
//	storageapi_changes_total                    action              of keys and webhooks
//	storageapi_observations_lost_total                              observations missing in the metrics above
//
// After [Collector.SetStats], each scrape also reads these:
//
//	storageapi_stats_up                         1, or 0 if the store did not answer; then the ones below are missing
//	storageapi_store_halted                     1 if the store is read-only; restart after fixing the disk
//	storageapi_deliveries_pending               of the whole store, as the next two
//	storageapi_deliveries_oldest_due_seconds    including receivers that are down
//	storageapi_webhooks_held
//	storageapi_deliveries_longest_wait_seconds  of webhooks whose receiver is up, for which this process delivers
//	storageapi_attempts_in_flight               of this process
//	storageapi_deliveries_dead_total            of this process, including deliveries without a last attempt
//	storageapi_file_size_bytes                  0 for stores without a file
//	storageapi_file_free_bytes
//
// Metrics of the whole store are the same on all nodes that share it: take the maximum, not the sum.
//
// # Labels
//
// No label is an ID, an account or an address, so the number of series does not grow with the number
// of customers:
//
//	outcome     one of observe.Outcomes
//	event_type  a declared type: a built-in one or one of webhooks.Config.Events
//	result      of attempts: one of observe.Results; of calls of the store: ok, failed, canceled
//	class       a webhooks.ErrorClass; empty for success
//	status      1xx to 5xx, other, or none if there was no response
//	action      one of audit.Actions
//
// Two Handlers in one process need prometheus.WrapRegistererWith, which adds a label to all
// metrics, or WrapRegistererWithPrefix.
//
// dashboard.json is a Grafana dashboard of these metrics. Import it, and select the data source.
package promstorage
