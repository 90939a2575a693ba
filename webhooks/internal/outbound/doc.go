// Package outbound sends POST requests to untrusted URLs.
//
//	client := outbound.New(outbound.Config{Dial: outbound.NewGuard(nil, nil).Dial, MaxIdle: outbound.DefaultMaxIdle()})
//	target, err := outbound.NewTarget("https://example.com/hooks", http.Header{"Content-Type": {"application/json"}})
//	response := client.Post(new(outbound.Canceler), outbound.Request{Target: target, Body: body, Deadline: deadline})
//
// A Client never dials an address that its [Guard] refuses, even if a name resolves to it later. It
// uses no proxy unless the host sets Config.Transport, follows no redirect, verifies TLS, and
// limits time, memory and DNS lookups. It never mistakes bytes that a receiver sends on an idle
// connection for a response. For a failed POST it returns a [Failure], whose text contains no
// received bytes and at most the host and port of the URL, and a [Fault], which says whether the
// receiver or this host caused the failure.
//
// The package deals only with hosts, bytes, limits and kinds of failure. Its caller chooses the
// requests and their times, and interprets the status.
package outbound
