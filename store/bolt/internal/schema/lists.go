package schema

import (
	"github.com/storageapi/storageapi/store/driver"
)

// WebhookLists are the buckets that list the webhooks, of all accounts, in a certain state.
var WebhookLists = []struct {
	Bucket []byte // ID → account
	Has    func(*driver.Webhook) bool
}{
	{Failing, func(w *driver.Webhook) bool { return w.Claimable() && w.FailedAgain }},
	{Held, func(w *driver.Webhook) bool { return w.Held }},
	{Off, func(w *driver.Webhook) bool { return !w.Active }},
}
