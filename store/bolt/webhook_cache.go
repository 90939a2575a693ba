package bolt

import (
	"bytes"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// maxCached bounds how many webhooks are remembered decoded, about a KiB each.
const maxCached = 16_384

// A webhookCache remembers webhooks as they were decoded for claims. Whether they
// are still so is seen by their records, which are read if any webhook has changed, or
// may be changing: readers of the file see a change before the step is done with.
type webhookCache struct {
	mu    sync.Mutex
	known map[string]*cachedWebhook // by id

	// changes counts when a transaction begins to change webhooks, and when that is
	// done with: while it is odd, one may be seen already. The writer's steps count.
	changes atomic.Uint64
}

func (c *webhookCache) changing() { c.changes.Store(c.changes.Load() | 1) }
func (c *webhookCache) changed()  { c.changes.Store((c.changes.Load() + 1) &^ 1) }

type cachedWebhook struct {
	row, record []byte
	webhook     *webhooks.Webhook
	changes     uint64 // what it counted when it was found to be so
}

// claimed returns the webhook of that id for a task. changes were counted before the
// transaction began.
func (s *Store) claimed(tx *bbolt.Tx, rows *bbolt.Bucket, id string, changes uint64) (*webhooks.Webhook, error) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	cached := s.cache.known[id]
	if cached != nil && (changes%2 == 0 && cached.changes == changes || bytes.Equal(rows.Get(cached.row), cached.record)) {
		cached.changes = changes
		return cached.webhook, nil
	}
	webhook, err := s.webhookOf(tx, id)
	if err != nil {
		return nil, err
	}
	row := record.Prefixed(webhook.Account, id)
	s.cache.put(id, &cachedWebhook{row, bytes.Clone(rows.Get(row)), &webhook, changes})
	return &webhook, nil
}

// put remembers a webhook.
func (c *webhookCache) put(id string, found *cachedWebhook) {
	if c.known == nil {
		c.known = make(map[string]*cachedWebhook)
	}
	for other := range c.known {
		if len(c.known) < maxCached {
			break
		}
		delete(c.known, other) // any
	}
	c.known[id] = found
}
