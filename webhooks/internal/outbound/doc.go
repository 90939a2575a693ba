// Package outbound makes guarded POSTs to URLs that strangers chose and that may point anywhere.
//
//	client := outbound.New(outbound.NewGuard(nil, nil), nil, outbound.DefaultMaxIdle())
//	target, err := outbound.NewTarget("https://example.com/hooks", http.Header{"Content-Type": {"application/json"}})
//	response := client.Post(new(outbound.Canceler), outbound.Request{Target: target, Body: body, Deadline: deadline})
//
// A Client never dials an address that its [Guard] refuses, even if a name resolves to it later.
// It uses no proxy, follows no redirect, verifies TLS, and bounds time, memory and DNS lookups.
// Bytes that a receiver sends unasked on an idle connection are never mistaken for a response.
// A failed POST returns a text without any part of the URL or of the received bytes, and a
// [Fault]: the receiver's or this host's.
//
// The package knows hosts, bytes, limits and kinds of failure. Its caller chooses the requests
// and their times, and interprets the status.
package outbound
