package bolt

import (
	"bytes"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/webhooks"
)

// maxSubscriptions bounds how many accounts' subscriptions are remembered.
const maxSubscriptions = 10_000

// subscriptions remembers which webhooks an account's events are for, so that
// publishing does not read all of the account's webhooks each time. Only steps
// of the writer use it, and those run one after the other. A step that changes a
// webhook makes it forget the account, and a transaction that is undone all of
// them, since they may have been read in it.
type subscriptions map[string][]subscription // by account

// A subscription is that of one active webhook.
type subscription struct {
	webhook string
	types   []webhooks.EventType
}

func (s *subscriptions) forget(account string) { delete(*s, account) }
func (s *subscriptions) forgetAll()            { clear(*s) }

// of returns the ids of the account's webhooks that are to receive an event of
// the type.
func (s *subscriptions) of(tx *bbolt.Tx, account string, t webhooks.EventType) []string {
	list, known := (*s)[account]
	if !known {
		if *s == nil || len(*s) >= maxSubscriptions {
			*s = make(subscriptions)
		}
		list = readSubscriptions(tx, account)
		(*s)[account] = list
	}
	var ids []string
	for _, sub := range list {
		if slices.Contains(sub.types, t) {
			ids = append(ids, sub.webhook)
		}
	}
	return ids
}

// readSubscriptions reads the account's webhooks. One that cannot be read
// subscribes to nothing: nothing could be sent to it either.
func readSubscriptions(tx *bbolt.Tx, account string) []subscription {
	var list []subscription
	prefix := prefixed(account, "")
	c := tx.Bucket(bucketWebhooks).Cursor()
	for k, record := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, record = c.Next() {
		id := string(k[len(prefix):])
		if webhook, err := decodeWebhook(account, id, record); err == nil && webhook.Active {
			list = append(list, subscription{id, webhook.Events})
		}
	}
	return list
}
