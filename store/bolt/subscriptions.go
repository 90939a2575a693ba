package bolt

import (
	"slices"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/queue"
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
	active, inactive []string         // ids
	standings        []queue.Standing // of the active ones
}

func (s *subscriptions) forget(account string) { delete(*s, account) }
func (s *subscriptions) forgetAll()            { clear(*s) }

// note notes the standing of a webhook whose subscription stays as it is. What was
// handed out before stays as it was.
func (s *subscriptions) note(account, id string, standing queue.Standing) {
	for i := range (*s)[account] {
		a := &(*s)[account][i]
		if at := slices.Index(a.active, id); at >= 0 {
			a.standings = slices.Clone(a.standings)
			a.standings[at] = standing
		}
	}
}

// subscribers returns the account's webhooks that are subscribed to events of the type.
// They are not to be changed.
func (s *Store) subscribers(tx *bbolt.Tx, account string, t webhooks.EventType) audience {
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
			return a
		}
	}
	return audience{}
}

// only returns what of the audience is the webhook of that id.
func (a audience) only(id string) (one audience) {
	if i := slices.Index(a.active, id); i >= 0 {
		one.active, one.standings = a.active[i:i+1:i+1], a.standings[i:i+1]
	}
	if i := slices.Index(a.inactive, id); i >= 0 {
		one.inactive = a.inactive[i : i+1 : i+1]
	}
	return one
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
				list[i].standings = append(list[i].standings, queue.StandingOf(&webhook))
			} else {
				list[i].inactive = append(list[i].inactive, webhook.ID)
			}
		}
	}
	return list
}
