package postgres

import (
	"sync"

	"github.com/storageapi/storageapi/webhooks"
)

// maxCached bounds how many webhooks are remembered decoded, about a KiB each.
const maxCached = 16_384

// A webhookCache remembers webhooks as they were read for claims, by their numbers.
// A claim reads again those whose version has changed.
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

// get returns what is known of a webhook: if nothing is, of a version that none has.
func (c *webhookCache) get(no int64) cachedWebhook {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found, ok := c.known[no]; ok {
		return found
	}
	return cachedWebhook{version: -1}
}

// put remembers a webhook.
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
