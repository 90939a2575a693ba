// Package otelstorage exports traces and metrics of a storageapi.Handler to OpenTelemetry.
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
// It is a separate module, so that only hosts that import it depend on OpenTelemetry. It uses only the
// OpenTelemetry API; the host chooses the SDK, its exporters and samplers.
//
// Names follow the semantic conventions 1.43.0 for HTTP clients and for messaging, with
// messaging.system "storageapi". Names outside of the conventions begin with "storageapi.".
//
// # Spans
//
// "POST", of kind client, is an attempt. It is the root of its own trace. If
// webhooks.Config.TraceContext is set, it has a link to the trace that published the event. It is
// not a child of that trace, because attempts may be made days later and by other processes, and
// the trace would stay open. A sampler decides about each attempt separately. A failed attempt has
// status Error and error.type. The URL of the receiver lacks its path, which may contain a secret.
//
// "publish", of kind producer, is a call of the store that stores events. It is a child of the
// caller's span. Its name ends with the event type if all events have the same type.
//
// The span of an HTTP request, which the host's own middleware creates around the API, gets the
// attributes storageapi.outcome, storageapi.account and storageapi.key.id.
//
// # Metrics
//
//	http.client.request.duration         attempts, with http.request.method, http.response.status_code, error.type, messaging.system
//	messaging.client.operation.duration  calls of the store: messaging.operation.name publish, claim, settle; error.type
//	messaging.client.sent.messages       published events, by messaging.destination.name, their type
//	messaging.client.consumed.messages   claimed deliveries
//	storageapi.attempts                  by messaging.destination.name, storageapi.result, error.type
//	storageapi.authentication.duration   by storageapi.outcome
//	storageapi.delivery.delay            from the event's timestamp to its arrival
//	storageapi.published.deliveries, storageapi.published.size, the latter by messaging.destination.name
//	storageapi.settled.deliveries, storageapi.settled.stale
//	storageapi.commit.duration, storageapi.commit.steps
//	storageapi.changes                   of keys and webhooks, by storageapi.action
//	storageapi.observations.lost         observations missing in the metrics above and the spans
//
// After [Telemetry.SetStats], each collection also reads these:
//
//	storageapi.stats.up                  1, or 0 if the store did not answer; then the ones below are missing
//	storageapi.store.halted              1 if the store is read-only; restart after fixing the disk
//	storageapi.deliveries.pending        of the whole store, as the next two
//	storageapi.deliveries.oldest_due
//	storageapi.webhooks.held
//	storageapi.deliveries.longest_wait   of webhooks whose receiver is up, for which this process delivers
//	storageapi.attempts.in_flight        of this process
//	storageapi.deliveries.dead           of this process, including deliveries without a last attempt
//	storageapi.file.size, storageapi.file.free
//
// Metrics of the whole store are the same on all nodes that share it: take the maximum, not the sum.
//
// No attribute of a metric is an ID, an account or an address, so the number of series does not
// grow with the number of customers. Therefore only spans have server.address and server.port,
// which the conventions require. A status that HTTP does not define is reported as the x00 of its
// class.
//
// # Shutdown
//
// Stop the server, end Run, close the Handler, which waits for queued observations, and then shut the
// providers down:
//
//	server.Shutdown(ctx)
//	stop()      // Run's context
//	api.Close() // the last observations arrive
//	tracers.Shutdown(ctx)
//	meters.Shutdown(ctx)
//
// dashboard.json is a Grafana dashboard of these metrics as stored by Prometheus, whose names end in
// units and _total. Import it, and select the data source.
package otelstorage
