package bolt

import (
	"bytes"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/webhooks"
)

// maxSubscriptions bounds how many accounts' subscriptions are remembered.
const maxSubscriptions = 10_000

// subscriptions remembers the webhooks of accounts, so that publishing does not
// read all of the account's webhooks each time. Only steps of the writer use it,
// and those run one after the other. A step that changes a subscription makes it
// forget the account, and a transaction that is undone all of them, since they may
// have been read in it.
type subscriptions map[string][]subscription // by account

// A subscription is that of one webhook.
type subscription struct {
	webhook string
	types   []webhooks.EventType
	active  bool
}

func (s *subscriptions) forget(account string) { delete(*s, account) }
func (s *subscriptions) forgetAll()            { clear(*s) }

// subscribers returns the ids of the account's webhooks that are subscribed to events of
// the type, by whether they are active.
func (s *Store) subscribers(tx *bbolt.Tx, account string, t webhooks.EventType) (active, inactive []string) {
	list, known := s.subscriptions[account]
	if !known {
		if s.subscriptions == nil || len(s.subscriptions) >= maxSubscriptions {
			s.subscriptions = make(subscriptions)
		}
		list = s.readSubscriptions(tx, account)
		s.subscriptions[account] = list
	}
	for _, sub := range list {
		switch {
		case !slices.Contains(sub.types, t):
		case sub.active:
			active = append(active, sub.webhook)
		default:
			inactive = append(inactive, sub.webhook)
		}
	}
	return active, inactive
}

// readSubscriptions reads the account's webhooks. One that cannot be read
// subscribes to nothing: nothing could be sent to it either.
func (s *Store) readSubscriptions(tx *bbolt.Tx, account string) []subscription {
	var list []subscription
	prefix := prefixed(account, "")
	c := tx.Bucket(bucketWebhooks).Cursor()
	for k, record := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, record = c.Next() {
		id := string(k[len(prefix):])
		if webhook, err := s.decodeWebhook(account, id, record); err == nil {
			list = append(list, subscription{id, webhook.Events, webhook.Active})
		}
	}
	return list
}
