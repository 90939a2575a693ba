// Package client is a Go client of the API: it manages an account's keys and webhooks over HTTP.
//
//	c, err := client.New("https://storage.example.com/v2", os.Getenv("KEY"), client.Options{})
//	key, err := c.CreateKey(ctx, client.CreateKey{Name: "ci", Scopes: []string{"files:read"}})
//	for webhook, err := range c.Webhooks(ctx) {
//		fmt.Println(webhook.URL, err)
//	}
//
// It uses only the standard library, so programs that import it do not depend on the service.
//
// # Errors
//
// A refusal is an [*Error]. Its Code is one of the constants of package auth.
//
// # Retries
//
// A call is repeated after 429, 502, 503 and 504 and after failed connections, if repeating it is
// harmless. Before each repetition the client waits for an increasing, random time, added to
// Retry-After if the response has it, but never beyond the end of the context. Creations carry an
// Idempotency-Key, so that repeating them creates nothing twice; see [ErrCreatedBefore]. Rotations,
// test events, recoveries and calls with [IfMatch] are repeated only if the service certainly did
// nothing.
package client
