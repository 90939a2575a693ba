package postgres

// The kinds of changes that owners of shards hear of. Each names shards, webhooks and events,
// element by element.
const (
	changeAdded   = iota // the delivery became pending just now
	changeFirst          // a delivery is to be the next of its webhook; it may have been pending before
	changeWebhook        // the webhook was changed or deleted; the event is 0
	changeProbe          // a probe of the webhook was asked for; the event is 0
	changeExpired        // the payload of the event was purged: its pending delivery to the webhook ends
)

// noteChange notes a change in the transaction that makes it: of the kind $1, the shards $2, the
// webhooks $3 and the events $4.
const noteChange = `
	insert into storageapi.changes (kind, shards, webhooks, events) values ($1::smallint, $2::smallint[], $3::bigint[], $4::bigint[])`
