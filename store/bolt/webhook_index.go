package bolt

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/storageapi/storageapi/store/bolt/internal/record"
	"github.com/storageapi/storageapi/webhooks"
)

// maxIndexed bounds how many webhooks the index has, about a KiB each, and how many its
// lists have.
const maxIndexed = 32_768

// A webhookIndex has webhooks in memory, decoded, as readers of the file see them: for
// claims and settlements by id, for publishing and creating all of an account. What it
// does not have is read from the file.
//
// It has one rule of invalidation. A step changes nothing in the index: it announces that
// the account is changing, and keeps the change in its batch, where later steps find it.
// Once readers of the file see the transaction, because its commit succeeded or is unsure,
// apply takes the changes over. If the transaction is undone, forgetChanging forgets the
// accounts that were announced. Until either happens, readers may see a change before the
// index has it, so a claim of a webhook whose account is changing reads the file.
type webhookIndex struct {
	mu       sync.Mutex
	byID     map[string]*indexedWebhook
	accounts map[string]*accountWebhooks
	listed   int             // how many the accounts have, and how many accounts there are
	changing map[string]bool // accounts
	version  uint64          // how often something was applied or forgotten
}

// An indexedWebhook is shared: it is not to be changed.
type indexedWebhook struct {
	webhooks.Webhook
	err error // why it cannot be decoded: nothing is sent to it, and it subscribes to nothing
}

// accountWebhooks are the webhooks of an account, by ID.
type accountWebhooks struct {
	list        []*indexedWebhook
	subscribers []subscribers // by type of event, once asked for; for steps of the writer only
}

// webhookChanges are what the steps of a batch have changed.
type webhookChanges struct {
	byID     map[string]*indexedWebhook  // nil: deleted
	accounts map[string]*accountWebhooks // nil: the index has no list of it
}

// accountWebhooks returns the account's webhooks as the batch sees them.
func (s *Store) accountWebhooks(b *batch, account string) *accountWebhooks {
	all, changed := b.webhooks.accounts[account]
	if !changed {
		all = s.index.account(account)
	}
	if all != nil {
		return all
	}
	all = s.readAccount(b.tx, account)
	if changed {
		b.webhooks.accounts[account] = all
	} else {
		s.index.putAccount(account, all)
	}
	return all
}

// indexed returns the webhook of that id as the batch sees it; nil if there is none.
func (s *Store) indexed(b *batch, id string) *indexedWebhook {
	if w, changed := b.webhooks.byID[id]; changed {
		return w
	}
	w, _ := s.index.webhook(id)
	if w == nil {
		if w = s.readIndexed(b.tx, id); w != nil {
			s.index.put(w)
		}
	}
	return w
}

// changeWebhook keeps in the batch that a webhook will be as it says, or is deleted if w
// is nil. The step that calls it writes so to the file.
func (s *Store) changeWebhook(b *batch, account, id string, w *indexedWebhook) {
	b.MarkWritten()
	changes := &b.webhooks
	if changes.byID == nil {
		changes.byID, changes.accounts = make(map[string]*indexedWebhook), make(map[string]*accountWebhooks)
		b.AfterCommit(func() { s.index.apply(changes) })
	}
	changes.byID[id] = w
	all, known := changes.accounts[account]
	if !known {
		all = s.index.announce(account).clone()
	}
	all.set(id, w)
	changes.accounts[account] = all
}

// readIndexed reads the webhook of that id; nil if there is none.
func (s *Store) readIndexed(tx *bbolt.Tx, id string) *indexedWebhook {
	account := tx.Bucket(bucketWebhookIDs).Get([]byte(id))
	if account == nil {
		return nil
	}
	return s.decodeIndexed(string(account), id, tx.Bucket(bucketWebhooks).Get(record.Prefixed(string(account), id)))
}

// readAccount reads the webhooks of an account.
func (s *Store) readAccount(tx *bbolt.Tx, account string) *accountWebhooks {
	all, prefix := new(accountWebhooks), record.Prefixed(account, "")
	c := tx.Bucket(bucketWebhooks).Cursor()
	for k, value := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, value = c.Next() {
		all.list = append(all.list, s.decodeIndexed(account, string(k[len(prefix):]), value))
	}
	return all
}

func (s *Store) decodeIndexed(account, id string, value []byte) *indexedWebhook {
	w, err := record.DecodeWebhook(account, id, value, s.keys)
	if err != nil {
		w = webhooks.Webhook{Account: account, ID: id}
	}
	return &indexedWebhook{w, err}
}

// at returns the index of the webhook of that id, and whether it is there.
func (a *accountWebhooks) at(id string) (int, bool) {
	return slices.BinarySearchFunc(a.list, id, func(w *indexedWebhook, id string) int { return strings.Compare(w.ID, id) })
}

// set adds or replaces a webhook, or removes it if w is nil. A nil list stays nil.
func (a *accountWebhooks) set(id string, w *indexedWebhook) {
	if a == nil {
		return
	}
	a.subscribers = nil
	switch i, there := a.at(id); {
	case w == nil && there:
		a.list = slices.Delete(a.list, i, i+1)
	case w != nil && there:
		a.list[i] = w
	case w != nil:
		a.list = slices.Insert(a.list, i, w)
	}
}

func (a *accountWebhooks) clone() *accountWebhooks {
	if a == nil {
		return nil
	}
	return &accountWebhooks{list: slices.Clone(a.list)}
}

// webhook returns the webhook of that id, if the index has it, and whether its account is
// changing.
func (x *webhookIndex) webhook(id string) (w *indexedWebhook, changing bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w = x.byID[id]
	return w, w != nil && x.changing[w.Account]
}

// account returns the account's webhooks, if the index has them.
func (x *webhookIndex) account(account string) *accountWebhooks {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.accounts[account]
}

// readVersion returns the version to be told to putRead.
func (x *webhookIndex) readVersion() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.version
}

// put adds a webhook that a step has read.
func (x *webhookIndex) put(w *indexedWebhook) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.set(w)
}

// putRead adds a webhook that was read in a transaction begun after that version, unless
// it may have changed since.
func (x *webhookIndex) putRead(w *indexedWebhook, version uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.version == version && !x.changing[w.Account] {
		x.set(w)
	}
}

// putAccount adds the webhooks of an account that a step has read.
func (x *webhookIndex) putAccount(account string, all *accountWebhooks) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setAccount(account, all)
	for _, w := range all.list {
		x.set(w)
	}
}

// announce says that a step is about to change the account, and returns its webhooks, if
// the index has them.
func (x *webhookIndex) announce(account string) *accountWebhooks {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.changing == nil {
		x.changing = make(map[string]bool)
	}
	x.changing[account] = true
	return x.accounts[account]
}

// apply takes over what readers of the file see from now on.
func (x *webhookIndex) apply(changes *webhookChanges) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, w := range changes.byID {
		if delete(x.byID, id); w != nil {
			x.set(w)
		}
	}
	for account, all := range changes.accounts {
		x.setAccount(account, all)
	}
	clear(x.changing)
	x.version++
}

// forgetChanging forgets the accounts that were announced and not applied.
func (x *webhookIndex) forgetChanging() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.changing) == 0 {
		return
	}
	for id, w := range x.byID {
		if x.changing[w.Account] {
			delete(x.byID, id)
		}
	}
	for account := range x.changing {
		x.setAccount(account, nil)
	}
	clear(x.changing)
	x.version++
}

// set adds a webhook, and forgets any other if there are too many. x.mu is held.
func (x *webhookIndex) set(w *indexedWebhook) {
	if x.byID == nil {
		x.byID = make(map[string]*indexedWebhook)
	}
	x.byID[w.ID] = w
	for id := range x.byID {
		if len(x.byID) <= maxIndexed {
			break
		}
		delete(x.byID, id)
	}
}

// setAccount sets the list of an account, or forgets it if that is nil, and forgets any
// others if there is too much. x.mu is held.
func (x *webhookIndex) setAccount(account string, all *accountWebhooks) {
	if old := x.accounts[account]; old != nil {
		x.listed -= 1 + len(old.list)
		delete(x.accounts, account)
	}
	if all == nil {
		return
	}
	for other, old := range x.accounts {
		if x.listed+1+len(all.list) <= maxIndexed {
			break
		}
		x.listed -= 1 + len(old.list)
		delete(x.accounts, other)
	}
	if x.accounts == nil {
		x.accounts = make(map[string]*accountWebhooks)
	}
	x.accounts[account] = all
	x.listed += 1 + len(all.list)
}
