// Package otelstorage gives traces and metrics of a storageapi.Handler to OpenTelemetry.
//
//	telemetry, err := otelstorage.New(otelstorage.Config{MeterProvider: meters, TracerProvider: tracers})
//	// …
//	api, err := storageapi.NewHandler(storageapi.Config{
//		Path: "storage.db", Observe: telemetry.Observer(),
//		Webhooks: webhooks.Config{TraceContext: telemetry.TraceContext},
//	})
//	// …
//	telemetry.SetStats(api.Webhooks.Stats)
//
// It is a module of its own, so that only hosts that import it depend on OpenTelemetry. It uses the API
// alone: the SDK, its exporters and samplers are the host's.
//
// Names are those of the semantic conventions 1.43.0, for HTTP clients and for messaging, with
// messaging.system "storageapi"; what they have no name for begins with "storageapi.".
//
// # Spans
//
// "POST", of kind client, is an attempt: a trace of its own, which is linked to the trace that
// published the event, if Config.TraceContext of webhooks kept it. Attempts are made days later, and by other processes: as
// children they would keep a trace open for ever. A sampler decides for each attempt by itself.
// An attempt that failed has status Error, error.type, and the URL of the receiver without its path,
// which may hold a secret.
//
// "publish", followed by the type of the event if all have one, is of kind producer: a call of the
// store that stores events, as a child of the caller's span.
//
// The span of an HTTP request, which the host's own middleware makes around the API, is given
// storageapi.outcome, storageapi.account and storageapi.key.id: whose key it was.
//
// # Metrics
//
//	http.client.request.duration         attempts, with http.request.method, http.response.status_code, error.type, messaging.system
//	messaging.client.operation.duration  calls of the store: messaging.operation.name publish, claim, settle; error.type
//	messaging.client.sent.messages       events that were published, by messaging.destination.name, their type
//	messaging.client.consumed.messages   deliveries that were claimed
//	storageapi.attempts                  by messaging.destination.name, storageapi.result, error.type
//	storageapi.authentication.duration   by storageapi.outcome
//	storageapi.delivery.delay            from the event's timestamp to its arrival
//	storageapi.published.deliveries, storageapi.published.size, the latter by messaging.destination.name
//	storageapi.settled.deliveries, storageapi.settled.stale
//	storageapi.commit.duration, storageapi.commit.steps
//	storageapi.changes                   of keys and webhooks, by storageapi.action
//	storageapi.observations.lost         what the metrics above and the spans have missed
//
// At each collection [Telemetry.SetStats] adds these:
//
//	storageapi.stats.up                  1, or 0 if the store did not answer: then those below are missing
//	storageapi.store.halted              1 if the store writes nothing any more: restart once the disk is sound
//	storageapi.deliveries.pending        of the whole store, as the next two
//	storageapi.deliveries.oldest_due
//	storageapi.webhooks.held
//	storageapi.deliveries.longest_wait   of webhooks whose receiver is up, for which this process delivers
//	storageapi.attempts.in_flight        of this process
//	storageapi.deliveries.dead           of this process, those without a last attempt included
//	storageapi.file.size, storageapi.file.free
//
// What is of the whole store is the same on all nodes that share it: take the maximum, not the sum.
//
// No attribute of a metric is an id, an account or an address, so that there are as many series with a million
// customers as with one. That is why server.address and server.port, which the conventions ask
// for, are on spans only, and why a status that HTTP does not define is counted as the x00 of its class.
//
// # Shutdown
//
// Stop the server, end Run, close the Handler, which waits until all is told, and then shut the
// providers down:
//
//	server.Shutdown(ctx)
//	stop()      // Run's context
//	api.Close() // the last observations arrive
//	tracers.Shutdown(ctx)
//	meters.Shutdown(ctx)
//
// dashboard.json is a dashboard for Grafana of these metrics as Prometheus stores them, with names that end in
// units and _total: import it, and choose the data source.
package otelstorage
