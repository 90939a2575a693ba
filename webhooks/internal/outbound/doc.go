// Package outbound makes one guarded POST: to an address that a stranger chose, and that
// may be anything.
//
//	client := outbound.New(outbound.NewGuard(nil, nil), nil)
//	target, err := outbound.NewTarget("https://example.com/hooks", http.Header{"Content-Type": {"application/json"}})
//	response := client.Post(new(outbound.Canceler), outbound.Request{Target: target, Body: body, Deadline: deadline})
//
// It dials nothing that its [Guard] refuses, whatever a name resolves to. It uses no proxy,
// follows no redirect, verifies TLS, and bounds time, memory and lookups. What a receiver
// says unasked is never taken for a response. A failure is told in words that hold nothing
// of the URL or of what was received, and with whether it is the receiver's or this host's.
//
// It knows hosts, bytes, bounds and kinds of failure. What is sent, when, and what a status
// means, is for its caller to decide.
package outbound
