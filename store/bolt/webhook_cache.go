package bolt

import (
	"bytes"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/webhooks"
)

// maxCached bounds how many webhooks are remembered decoded, about a KiB each.
const maxCached = 16_384

// A webhookCache remembers webhooks as they were decoded for claims. Whether they
// are still so is seen by their records, which are read each time.
type webhookCache struct {
	mu    sync.Mutex
	known map[string]cachedWebhook // by id
}

type cachedWebhook struct {
	row, record []byte
	webhook     webhooks.Webhook
}

// claimed returns the webhook of that id for a task, which must not change it.
func (s *Store) claimed(tx *bbolt.Tx, rows *bbolt.Bucket, id string) (webhooks.Webhook, error) {
	s.cache.mu.Lock()
	cached, known := s.cache.known[id]
	s.cache.mu.Unlock()
	if known && bytes.Equal(rows.Get(cached.row), cached.record) {
		return cached.webhook, nil
	}
	webhook, err := s.webhookOf(tx, id)
	if err != nil {
		return webhook, err
	}
	row := prefixed(webhook.Account, id)
	s.cache.put(id, cachedWebhook{row, bytes.Clone(rows.Get(row)), webhook})
	return webhook, nil
}

func (c *webhookCache) put(id string, found cachedWebhook) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = make(map[string]cachedWebhook)
	}
	for other := range c.known {
		if len(c.known) < maxCached {
			break
		}
		delete(c.known, other) // any
	}
	c.known[id] = found
}
