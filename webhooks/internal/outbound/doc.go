// Package outbound makes one guarded POST: to an address that a stranger chose, and that
// may be anything.
//
//	client := outbound.New(outbound.NewGuard(nil, nil), nil, outbound.DefaultMaxIdle())
//	target, err := outbound.NewTarget("https://example.com/hooks", http.Header{"Content-Type": {"application/json"}})
//	response := client.Post(new(outbound.Canceler), outbound.Request{Target: target, Body: body, Deadline: deadline})
//
// A Client dials nothing that its [Guard] refuses, also if a name comes to resolve to it. It
// uses no proxy, follows no redirect, verifies TLS, and bounds time, memory and lookups.
// Bytes that a receiver has sent unasked on a connection that was kept are not taken for a
// response. A failure comes as a text that holds nothing of the URL or of what was received,
// and with its [Fault]: the receiver's, or this host's.
//
// The package knows hosts, bytes, bounds and kinds of failure. What is sent and when, and
// what a status means, is for its caller to decide.
package outbound
