package bolt

import (
	"slices"

	"github.com/storageapi/storageapi/webhooks"
)

// subscribers are the webhooks of an account that are subscribed to a type of event.
// They are shared: they are not to be changed.
type subscribers struct {
	to               webhooks.EventType
	active, inactive []string          // IDs
	hooks            []*indexedWebhook // the active ones
}

// subscribedTo returns the subscribers to events of the type.
func (a *accountWebhooks) subscribedTo(t webhooks.EventType) subscribers {
	if a.subscribers == nil {
		a.subscribers = a.allSubscribers()
	}
	for _, s := range a.subscribers {
		if s.to == t {
			return s
		}
	}
	return subscribers{}
}

func (a *accountWebhooks) allSubscribers() []subscribers {
	list := make([]subscribers, 0, 4)
	for _, w := range a.list {
		for n, t := range w.Events {
			if slices.Contains(w.Events[:n], t) {
				continue
			}
			i := slices.IndexFunc(list, func(s subscribers) bool { return s.to == t })
			if i < 0 {
				i = len(list)
				list = append(list, subscribers{to: t})
			}
			if w.Active {
				list[i].active = append(list[i].active, w.ID)
				list[i].hooks = append(list[i].hooks, w)
			} else {
				list[i].inactive = append(list[i].inactive, w.ID)
			}
		}
	}
	return list
}

// only returns the subscribers without all but the webhook of that id.
func (s subscribers) only(id string) (one subscribers) {
	if i := slices.Index(s.active, id); i >= 0 {
		one.active, one.hooks = s.active[i:i+1:i+1], s.hooks[i:i+1]
	}
	if i := slices.Index(s.inactive, id); i >= 0 {
		one.inactive = s.inactive[i : i+1 : i+1]
	}
	return one
}
