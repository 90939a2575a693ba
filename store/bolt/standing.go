package bolt

import (
	"github.com/storageapi/storageapi/signing"
	"github.com/storageapi/storageapi/store/bolt/internal/record"
)

// A standing is what a settlement may change of its webhook.
type standing struct {
	gone    bool // there is no such webhook
	failing bool // it has a FailingSince
	again   bool // it has FailedAgain set
	warned  bool // it has a WarnedAt
	proven  bool // it has a ProvenAt
}

// standings remembers those of webhooks, so that mostly settling need not look. It is for
// steps of the writer only.
type standings map[string]standing

// maxStandings bounds it, at some 100 bytes a webhook.
const maxStandings = 65_536

// of returns the webhook's standing.
func (s standings) of(b *batch, id string, keys *signing.Keyring) standing {
	known, ok := s[id]
	if !ok {
		if len(s) >= maxStandings {
			clear(s)
		}
		account := b.Get(bucketWebhookIDs, []byte(id))
		known = standing{proven: true} // one that cannot be read has none: nothing is sent to it
		w, err := record.DecodeWebhook(string(account), id, b.Get(bucketWebhooks, record.Prefixed(string(account), id)), keys)
		if err == nil {
			known = standing{failing: !w.FailingSince.IsZero(), again: w.FailedAgain, warned: !w.WarnedAt.IsZero(), proven: !w.ProvenAt.IsZero()}
		}
		known.gone = account == nil
		s[id] = known
	}
	return known
}

// forget forgets a webhook that changes, and a transaction that is undone all of
// them, since they may have changed in it.
func (s standings) forget(id string) { delete(s, id) }
func (s standings) forgetAll()       { clear(s) }
