// Package observe lets a host see what the library does, as it does it: for metrics, traces
// and access logs.
//
//	config.Observe = observe.Observer{
//		Attempted: func(a observe.Attempt) { attempts.WithLabelValues(a.EventType, string(a.Result)).Inc() },
//	}
//
// It is fast and may lose events: it tells what this process does, from its start to its end.
// What must not be lost is in the store: the audit trail (package notices) has each change, and
// deliveries have their attempts.
//
// # Who calls, and what it costs
//
// A function that is nil costs nothing. Those with a context are called on the goroutine of the
// request or the caller that they tell of, and hold up that one alone. All others are made one
// after the other from a queue, on a goroutine of its own, and hold up nothing: while 8,192 calls
// wait, later ones are not made. They are counted, told to [Observer.Lost], and logged at most
// once a minute. Each service, and each store, has a queue of its own, so that functions may be
// called at the same time. One that panics or ends its goroutine is logged, without what it panicked with.
//
// storageapi.Handler.Close returns when all queues are empty, or a second after they should be:
// shut exporters down after it.
//
// # Labels
//
// Which fields have few values, and so can be labels of metrics, is said at each of them. Ids,
// accounts and receivers have as many as there are customers: they are for spans and logs.
package observe
