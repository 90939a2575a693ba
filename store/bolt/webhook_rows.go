package bolt

import (
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// maxIndexed bounds the number of cached webhooks, of about 1 KiB each. It also bounds the cached
// lists of accounts: the number of accounts plus the number of webhooks in their lists.
const maxIndexed = 32_768

// webhookRows caches decoded webhooks by ID.
type webhookRows = mirror.Mirror[string, *indexedWebhook]

// accountRows caches the list of webhooks of each account.
type accountRows = mirror.Mirror[string, *accountWebhooks]

func newWebhookRows() *webhookRows {
	return mirror.New[string](mirror.Options[*indexedWebhook]{Max: maxIndexed})
}

func newAccountRows() *accountRows {
	return mirror.New[string](mirror.Options[*accountWebhooks]{Max: maxIndexed, Weight: func(a *accountWebhooks) int { return 1 + len(a.list) }})
}

// An indexedWebhook is a webhook in the cache. It is shared and must not be changed.
type indexedWebhook struct {
	driver.Webhook
	err error // decoding error; a webhook with an error gets no deliveries and has no subscriptions
}

// accountWebhooks are the webhooks of an account, sorted by ID. Steps share the value; to change
// it, a step must make a copy.
type accountWebhooks struct {
	list        []*indexedWebhook
	subscribers []subscribers // one per event type; built on first use
}

// accountWebhooks returns the account's webhooks, including changes made in the batch.
func (s *engine) accountWebhooks(b *batch, account string) *accountWebhooks {
	all, ok := s.accountRows.InStep(account)
	if ok {
		return all
	}
	all = s.readAccount(b.tx, account)
	s.accountRows.Keep(account, all)
	for _, w := range all.list {
		s.webhookRows.Keep(w.ID, w)
	}
	return all
}

// indexed returns the webhook, including changes made in the batch; nil if it does not exist.
func (s *engine) indexed(b *batch, id string) *indexedWebhook {
	w, ok := s.webhookRows.InStep(id)
	if ok {
		return w
	}
	if w = s.readIndexed(b.tx, id); w != nil {
		s.webhookRows.Keep(id, w)
	}
	return w
}

// changeWebhook updates the cache. Call it before the step stores the webhook w, or deletes the
// webhook with that ID if w is nil.
func (s *engine) changeWebhook(b *batch, account, id string, w *indexedWebhook) {
	if all, ok := s.accountRows.InStep(account); ok {
		s.accountRows.Set(b, account, all.with(id, w))
	} else {
		s.accountRows.Drop(b, account)
	}
	if w != nil {
		s.webhookRows.Set(b, id, w)
	} else {
		s.webhookRows.Drop(b, id)
	}
}

// readIndexed reads a webhook by ID from the file; nil if it does not exist.
func (s *engine) readIndexed(tx *bbolt.Tx, id string) *indexedWebhook {
	account := tx.Bucket(schema.WebhookIDs).Get([]byte(id))
	if account == nil {
		return nil
	}
	return s.decodeIndexed(string(account), id, tx.Bucket(schema.Webhooks).Get(record.Prefixed(string(account), id)))
}

// readAccount reads the webhooks of an account from the file.
func (s *engine) readAccount(tx *bbolt.Tx, account string) *accountWebhooks {
	all, prefix := new(accountWebhooks), record.Prefixed(account, "")
	for k, value := range rows.WithPrefix(tx.Bucket(schema.Webhooks), prefix) {
		all.list = append(all.list, s.decodeIndexed(account, string(k[len(prefix):]), value))
	}
	return all
}

func (s *engine) decodeIndexed(account, id string, value []byte) *indexedWebhook {
	w, err := record.DecodeWebhook(account, id, value, s.dataKey)
	if err != nil {
		w = driver.Webhook{Account: account, ID: id}
	}
	return &indexedWebhook{w, err}
}

// at returns the index of a webhook in the list, and whether the list contains it.
func (a *accountWebhooks) at(id string) (int, bool) {
	return slices.BinarySearchFunc(a.list, id, func(w *indexedWebhook, id string) int { return strings.Compare(w.ID, id) })
}

// with returns a copy of a in which w is the webhook with that ID. If w is nil, the copy has no
// webhook with that ID.
func (a *accountWebhooks) with(id string, w *indexedWebhook) *accountWebhooks {
	list := slices.Clone(a.list)
	switch i, there := a.at(id); {
	case w == nil && there:
		list = slices.Delete(list, i, i+1)
	case w != nil && there:
		list[i] = w
	case w != nil:
		list = slices.Insert(list, i, w)
	}
	return &accountWebhooks{list: list}
}

// subscribers are the webhooks of an account subscribed to an event type. They are shared and must
// not be changed.
type subscribers struct {
	to               driver.EventType
	active, inactive []string          // IDs
	hooks            []*driver.Webhook // the active subscribers
}

// subscribedTo returns the subscribers of an event type.
func (a *accountWebhooks) subscribedTo(t driver.EventType) subscribers {
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
				list[i].hooks = append(list[i].hooks, &w.Webhook)
			} else {
				list[i].inactive = append(list[i].inactive, w.ID)
			}
		}
	}
	return list
}

// only returns s reduced to the subscriber with that ID, or empty if there is none.
func (s subscribers) only(id string) (one subscribers) {
	if i := slices.Index(s.active, id); i >= 0 {
		one.active, one.hooks = s.active[i:i+1:i+1], s.hooks[i:i+1]
	}
	if i := slices.Index(s.inactive, id); i >= 0 {
		one.inactive = s.inactive[i : i+1 : i+1]
	}
	return one
}
