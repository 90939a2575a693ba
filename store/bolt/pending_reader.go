package bolt

import (
	"time"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/eventlog"
	"github.com/storageapi/storageapi/webhooks"
)

// newPendingReader returns a reader that passes to visit the pending deliveries of webhooks that readers see. version is
// that of webhookRows, from before tx began.
func (s *Store) newPendingReader(tx *bbolt.Tx, version uint64, visit func(webhooks.PendingDelivery)) *eventlog.PendingReader {
	hooks := make(map[string]*webhooks.Webhook) // nil: it is deleted, or its account is being erased
	return &eventlog.PendingReader{View: s.log.View(tx), Now: time.Now(), Visit: func(webhook []byte, d webhooks.PendingDelivery) {
		w, known := hooks[string(webhook)]
		if !known {
			if found := s.webhookSeen(tx, version, string(webhook)); found != nil && !s.erasing.has(found.Account) {
				w = &found.Webhook
			}
			hooks[string(webhook)] = w
		}
		if d.Webhook = w; w != nil {
			visit(d)
		}
	}}
}

// webhookSeen returns the webhook of that ID as readers of tx see it, or as it is by now; nil if
// it is deleted. version is that of webhookRows, from before tx began.
func (s *Store) webhookSeen(tx *bbolt.Tx, version uint64, id string) *indexedWebhook {
	w, ok := s.webhookRows.Get(id)
	if ok {
		return w
	}
	if w = s.readIndexed(tx, id); w != nil {
		s.webhookRows.Fill(id, w, version)
	}
	return w
}
