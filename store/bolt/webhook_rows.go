package bolt

import (
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/scopes"
	"github.com/storageapi/storageapi/store/bolt/internal/groupcommit"
	"github.com/storageapi/storageapi/store/bolt/internal/mirror"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/store/bolt/internal/rows"
	"github.com/storageapi/storageapi/store/bolt/internal/schema"
	"github.com/storageapi/storageapi/store/driver"
)

// maxIndexed bounds the number of cached webhooks, of about 1 KiB each. It also bounds the cached
// lists of accounts: the number of accounts plus the number of webhooks in their lists.
const maxIndexed = 32_768

// webhookRows caches decoded webhooks.
type webhookRows struct {
	decode    func(account, id string, value []byte) (driver.Webhook, error)
	byID      *mirror.Mirror[string, *indexedWebhook]
	byAccount *mirror.Mirror[string, *accountWebhooks]
}

func newWebhookRows(decode func(account, id string, value []byte) (driver.Webhook, error)) *webhookRows {
	return &webhookRows{
		decode: decode,
		byID:   mirror.New[string](mirror.Options[*indexedWebhook]{Max: maxIndexed}),
		byAccount: mirror.New[string](mirror.Options[*accountWebhooks]{
			Max: maxIndexed, Weight: func(a *accountWebhooks) int { return 1 + len(a.list) },
		}),
	}
}

// end ends a transaction.
func (r *webhookRows) end(ending mirror.Ending) {
	r.byID.End(ending)
	r.byAccount.End(ending)
}

// An indexedWebhook is a webhook in the cache. It is shared and must not be changed.
type indexedWebhook struct {
	driver.Webhook
	err error // decoding error; a webhook with an error gets no deliveries and has no subscriptions
}

// accountWebhooks are the webhooks of an account, sorted by ID. Write transactions share the value;
// to change it, make a copy.
type accountWebhooks struct {
	list        []*indexedWebhook
	subscribers []subscribers // one per event type and scope; built on first use
}

// ofAccount returns the account's webhooks, including changes made in tx.
func (r *webhookRows) ofAccount(tx *groupcommit.Tx, account string) *accountWebhooks {
	all, ok := r.byAccount.InStep(account)
	if ok {
		return all
	}
	all = r.readAccount(tx.Bolt, account)
	r.byAccount.Keep(account, all)
	for _, w := range all.list {
		r.byID.Keep(w.ID, w)
	}
	return all
}

// inStep returns the webhook, including changes made in tx; nil if it does not exist.
func (r *webhookRows) inStep(tx *groupcommit.Tx, id string) *indexedWebhook {
	w, ok := r.byID.InStep(id)
	if ok {
		return w
	}
	if w = r.read(tx.Bolt, id); w != nil {
		r.byID.Keep(id, w)
	}
	return w
}

// version returns a version to pass to seen. Call it before the transaction begins.
func (r *webhookRows) version() uint64 { return r.byID.Version() }

// seen returns a version of the webhook that is at least as new as the read transaction tx, or nil
// if the webhook is deleted.
func (r *webhookRows) seen(tx *bbolt.Tx, version uint64, id string) *indexedWebhook {
	w, ok := r.byID.Get(id)
	if ok {
		return w
	}
	if w = r.read(tx, id); w != nil {
		r.byID.Fill(id, w, version)
	}
	return w
}

// change updates the cache. Call it before the webhook w is stored or, if w is nil, before the
// webhook with that ID is deleted.
func (r *webhookRows) change(tx *groupcommit.Tx, account, id string, w *indexedWebhook) {
	if all, ok := r.byAccount.InStep(account); ok {
		r.byAccount.Set(tx, account, all.with(id, w))
	} else {
		r.byAccount.Drop(tx, account)
	}
	if w != nil {
		r.byID.Set(tx, id, w)
	} else {
		r.byID.Drop(tx, id)
	}
}

// read reads a webhook by ID from the file; nil if it does not exist.
func (r *webhookRows) read(tx *bbolt.Tx, id string) *indexedWebhook {
	account := tx.Bucket(schema.WebhookIDs).Get([]byte(id))
	if account == nil {
		return nil
	}
	return r.decoded(string(account), id, tx.Bucket(schema.Webhooks).Get(record.Prefixed(string(account), id)))
}

// readAccount reads the webhooks of an account from the file.
func (r *webhookRows) readAccount(tx *bbolt.Tx, account string) *accountWebhooks {
	all, prefix := new(accountWebhooks), record.Prefixed(account, "")
	for k, value := range rows.WithPrefix(tx.Bucket(schema.Webhooks), prefix) {
		all.list = append(all.list, r.decoded(account, string(k[len(prefix):]), value))
	}
	return all
}

func (r *webhookRows) decoded(account, id string, value []byte) *indexedWebhook {
	w, err := r.decode(account, id, value)
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
	scope            scopes.Scope      // of the type
	limited          bool              // some of the webhooks are limited to resources
	active, inactive []string          // IDs
	hooks            []*driver.Webhook // the active subscribers
}

// receiving returns the subscribers that get an event. If only is not empty, it returns only the
// subscriber with this ID.
func (a *accountWebhooks) receiving(e *driver.EncodedEvent, only string) subscribers {
	if len(a.list) == 0 {
		return subscribers{}
	}
	i := slices.IndexFunc(a.subscribers, func(s subscribers) bool { return s.to == e.Type && s.scope == e.Scope })
	if i < 0 {
		i = len(a.subscribers)
		a.subscribers = append(a.subscribers, a.matching(e, func(*indexedWebhook) bool { return true }))
	}
	if all := a.subscribers[i]; only == "" && !all.limited {
		return all
	}
	return a.matching(e, func(w *indexedWebhook) bool { return w.Resources.Allows(e.Resource) && (only == "" || w.ID == only) })
}

// matching returns the subscribers to the event's type for which also(w) is true.
func (a *accountWebhooks) matching(e *driver.EncodedEvent, also func(*indexedWebhook) bool) subscribers {
	found := subscribers{to: e.Type, scope: e.Scope}
	for _, w := range a.list {
		switch {
		case !w.Subscribes(e.Type, e.Scope) || !also(w):
			continue
		case w.Active:
			found.active = append(found.active, w.ID)
			found.hooks = append(found.hooks, &w.Webhook)
		default:
			found.inactive = append(found.inactive, w.ID)
		}
		found.limited = found.limited || !w.Resources.IsZero()
	}
	return found
}
