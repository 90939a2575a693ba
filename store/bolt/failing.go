package bolt

// A failing remembers of webhooks whether they have a FailingSince, so that mostly
// settling need not look. It is for steps of the writer only.
type failing map[string]bool

// maxFailing bounds it, at some 100 bytes a webhook.
const maxFailing = 65_536

// is reports whether the webhook has a FailingSince.
func (f failing) is(b *batch, id string) bool {
	fails, known := f[id]
	if !known {
		if len(f) >= maxFailing {
			clear(f)
		}
		account := b.get(bucketWebhookIDs, []byte(id))
		fails = isFailing(b.get(bucketWebhooks, prefixed(string(account), id)))
		f[id] = fails
	}
	return fails
}

// forget forgets a webhook that changes, and a transaction that is undone all of
// them, since they may have changed in it.
func (f failing) forget(id string) { delete(f, id) }
func (f failing) forgetAll()       { clear(f) }
