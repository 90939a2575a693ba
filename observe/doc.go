// Package observe reports the library's operations to the host as they happen, for metrics,
// traces and access logs.
//
//	config.Observe = observe.Observer{
//		Attempted: func(a observe.Attempt) { attempts.WithLabelValues(a.EventType, string(a.Result)).Inc() },
//	}
//
// Observation is fast, but may lose calls, and covers only this process. Durable records are in
// the store: the audit log (package audit) has every change, and deliveries have their attempts.
//
// # Goroutines and cost
//
// A nil function costs nothing. A function with a context is called on the goroutine of the
// request or call that it reports, and delays only that request or call. All other functions are
// called from a queue, one after the other, on a separate goroutine, and delay nothing. While
// 8,192 calls are queued, further ones are dropped; they are counted, reported to
// [Observer.Lost], and logged at most once a minute. Each service and each store has its own
// queue, so functions may be called concurrently. If a function panics or calls [runtime.Goexit],
// this is logged, without the value of the panic.
//
// storageapi.Handler.Close returns when all queues are empty, but waits at most a second for
// them. Shut exporters down after it.
//
// # Labels
//
// IDs, accounts and receivers have as many values as there are customers. Such fields are marked
// "not for labels": use them in spans and logs. The other fields have few values and may be
// labels.
package observe
