package postgres

import (
	"maps"
	"sync"

	"github.com/storageapi/storageapi/webhooks"
)

// maxCached is how many decoded webhooks are cached, about 1 KiB each.
const maxCached = 16_384

// A webhookCache caches webhooks by their numbers, as claims read them. A claim reads those
// again whose version has changed.
type webhookCache struct {
	mu    sync.Mutex
	known map[int64]cachedWebhook
}

// A cachedWebhook is shared by tasks.
type cachedWebhook struct {
	version int64
	webhook *webhooks.Webhook
	err     error // it cannot be read
}

// get returns a cached webhook, or one with a version that no webhook has.
func (c *webhookCache) get(no int64) cachedWebhook {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.known[no]; ok {
		return found
	}
	return cachedWebhook{version: -1}
}

// put caches a webhook.
func (c *webhookCache) put(no int64, found cachedWebhook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = make(map[int64]cachedWebhook)
	}
	for other := range c.known {
		if len(c.known) < maxCached {
			break
		}
		delete(c.known, other) // any
	}
	c.known[no] = found
}

// forget removes the webhooks of an account.
func (c *webhookCache) forget(account string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(_ int64, cached cachedWebhook) bool {
		return cached.webhook != nil && cached.webhook.Account == account
	})
}
