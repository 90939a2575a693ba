package schema

import "github.com/storageapi/storageapi/webhooks"

// WebhookLists are the buckets that list the webhooks, of all accounts, in a certain state.
var WebhookLists = []struct {
	Bucket []byte // ID → account
	Has    func(*webhooks.Webhook) bool
}{
	{Failing, func(w *webhooks.Webhook) bool { return w.Claimable() && w.FailedAgain }},
	{Held, func(w *webhooks.Webhook) bool { return w.Held }},
	{Off, func(w *webhooks.Webhook) bool { return !w.Active }},
}
