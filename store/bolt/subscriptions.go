package bolt

import (
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
type subscriptions map[string][]audience // by account

// An audience is the webhooks of an account that are subscribed to a type of event.
type audience struct {
	of               webhooks.EventType
	active, inactive []string // ids
}

func (s *subscriptions) forget(account string) { delete(*s, account) }
func (s *subscriptions) forgetAll()            { clear(*s) }

// subscribers returns the ids of the account's webhooks that are subscribed to events of
// the type, by whether they are active. They are not to be changed.
func (s *Store) subscribers(tx *bbolt.Tx, account string, t webhooks.EventType) (active, inactive []string) {
	list, known := s.subscriptions[account]
	if !known {
		if s.subscriptions == nil || len(s.subscriptions) >= maxSubscriptions {
			s.subscriptions = make(subscriptions)
		}
		list = s.readSubscriptions(tx, account)
		s.subscriptions[account] = list
	}
	for _, a := range list {
		if a.of == t {
			return a.active, a.inactive
		}
	}
	return nil, nil
}

// readSubscriptions reads the account's webhooks. One that cannot be read
// subscribes to nothing: nothing could be sent to it either.
func (s *Store) readSubscriptions(tx *bbolt.Tx, account string) []audience {
	var list []audience
	for _, webhook := range s.webhooksOf(tx, account) {
		for n, t := range webhook.Events {
			if slices.Contains(webhook.Events[:n], t) {
				continue
			}
			i := slices.IndexFunc(list, func(a audience) bool { return a.of == t })
			if i < 0 {
				i = len(list)
				list = append(list, audience{of: t})
			}
			if webhook.Active {
				list[i].active = append(list[i].active, webhook.ID)
			} else {
				list[i].inactive = append(list[i].inactive, webhook.ID)
			}
		}
	}
	return list
}
