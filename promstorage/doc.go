// Package promstorage gives the metrics of a storageapi.Handler to Prometheus.
//
//	metrics := promstorage.New()
//	api, err := storageapi.NewHandler(storageapi.Config{Path: "storage.db", Observe: metrics.Observer()})
//	// …
//	metrics.SetStats(api.Webhooks.Stats)
//	prometheus.MustRegister(metrics)
//
// It is a module of its own, so that only hosts that import it depend on Prometheus' client.
//
// # Metrics
//
// Counters and histograms count what [observe.Observer] is told, from [New] on:
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
//	storageapi_settled_stale_total                                  results that were dropped: another worker has the delivery
//	storageapi_commit_duration_seconds          result              histogram: a commit of store/bolt
//	storageapi_commit_steps_total                                   calls of the store that share the commits
//	storageapi_changes_total                    action              of keys and webhooks
//	storageapi_observations_lost_total                              what the metrics above have missed
//
// Gauges and two counters are asked for at each scrape, once [Collector.SetStats] was called:
//
//	storageapi_stats_up                    1, or 0 if the store did not answer: then those below are missing
//	storageapi_store_halted                1 if the store writes nothing any more: restart once the disk is sound
//	storageapi_deliveries_pending          of the whole store, as the next two
//	storageapi_deliveries_oldest_due_seconds    receivers that are down included
//	storageapi_webhooks_held
//	storageapi_deliveries_longest_wait_seconds  of webhooks whose receiver is up, for which this process delivers
//	storageapi_attempts_in_flight          of this process
//	storageapi_deliveries_dead_total       of this process, those without a last attempt included
//	storageapi_file_size_bytes                  0 for stores without a file
//	storageapi_file_free_bytes
//
// What is of the whole store is the same on all nodes that share it: take the maximum, not the sum.
//
// # Labels
//
// No label is an id, an account or an address, so that there are as many series with a million customers as with one:
//
//	outcome     one of observe.Outcomes
//	event_type  a type that is declared: the built-in ones and those of webhooks.Config.Events
//	result      of attempts: one of observe.Results; of calls of the store: ok, failed, canceled
//	class       a webhooks.ErrorClass; empty for success
//	status      1xx to 5xx, other, or none if there was no response
//	action      one of notices.Actions
//
// All names can be given a prefix or a label by prometheus.WrapRegistererWith, which two
// Handlers in one process need.
//
// dashboard.json is a dashboard for Grafana of these metrics: import it, and choose the data source.
package promstorage
