package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/webhooks"
)

const (
	// pendingOf selects the pending deliveries of the events $1.
	pendingOf = `
		select e.account, w.id, q.shard, q.webhook, q.event from unnest($1::bigint[]) as i (event)
		cross join lateral (select account from storageapi.events where event between i.event and i.event order by event limit 1) e
		cross join lateral (select no, id from storageapi.webhooks where (account, id) >= (e.account, '') and account <= e.account) w
		cross join lateral (
			select shard, webhook, event from storageapi.pending where webhook = w.no and event = i.event limit 1) q`

	// expiredOf selects those of the deliveries of the events $2 to the webhooks $1 that are
	// pending without a payload.
	expiredOf = `
		select w.account, w.id, q.shard, q.webhook, q.event from unnest($1::bigint[], $2::bigint[]) as i (webhook, event)
		cross join lateral (select account, id from storageapi.webhooks where no = i.webhook limit 1) w
		cross join lateral (
			select from storageapi.events where event between i.event and i.event and body is null order by event limit 1) e
		cross join lateral (
			select shard, webhook, event from storageapi.pending where webhook = i.webhook and event = i.event limit 1) q`

	// ownShards selects those of the shards $1 that the node $2 or no node owns, and whether it
	// is the node. lockOwnShards keeps these from being taken until the transaction ends.
	ownShards = `
		select shard, node = $2 from storageapi.shard_owners o
		where shard = any($1::smallint[]) and (node = $2 or not exists (select from storageapi.nodes n where n.node = o.node))`
	lockOwnShards = ownShards + ` order by shard for share of o`
)

var endPending = query("end_pending")

// An expiredDelivery is pending, and its payload is purged.
type expiredDelivery struct {
	account, webhookID string
	shard              int16
	pair               deliveryPair
}

// A deliveryPair are the numbers of a delivery's webhook and event.
type deliveryPair struct{ webhook, event int64 }

func scanExpired(row pgx.CollectableRow) (d expiredDelivery, err error) {
	return d, row.Scan(&d.account, &d.webhookID, &d.shard, &d.pair.webhook, &d.pair.event)
}

// An expirer ends pending deliveries in a transaction, except those that are being attempted.
// Meanwhile it keeps them from being claimed on this node. What this node owns and does not have
// in memory is ended only if it cannot come there meanwhile, since the caller holds looks.
type expirer struct {
	*Store
	holds    bool                    // the caller holds looks
	reserved map[deliveryPair]uint64 // the tokens, 0 of what is not in memory
	asked    map[deliveryPair]bool   // whether they were reserved
	ended    map[deliveryPair]bool   // by the transaction
}

func (s *Store) newExpirer() *expirer {
	return &expirer{Store: s, reserved: make(map[deliveryPair]uint64), asked: make(map[deliveryPair]bool)}
}

// end ends the deliveries, and returns those that their owners are to end: other nodes, which
// alone know what they are attempting, or this one with its next look. It may run again, if the
// transaction does.
func (x *expirer) end(ctx context.Context, tx pgx.Tx, list []expiredDelivery) (others []expiredDelivery, err error) {
	x.ended = make(map[deliveryPair]bool)
	if len(list) == 0 {
		return nil, nil
	}
	own, err := x.lockShards(ctx, tx, list)
	if err != nil {
		return nil, err
	}
	x.keep(list, own)
	var hooks, events []int64
	for _, d := range list {
		mine, ends := own[d.shard]
		token, free := x.reserved[d.pair]
		switch {
		case !ends, mine && free && token == 0 && !x.holds:
			others = append(others, d)
		case free, !mine:
			hooks, events = append(hooks, d.pair.webhook), append(events, d.pair.event)
		}
	}
	expired := webhooks.ExpiredAttempt(0, time.Now())
	rows, err := tx.Query(ctx, x.sql(endPending), hooks, events, expired.StartedAt, string(expired.Class), expired.Error)
	if err != nil {
		return nil, err
	}
	var pair deliveryPair
	_, err = pgx.ForEachRow(rows, []any{&pair.webhook, &pair.event}, func() error { x.ended[pair] = true; return nil })
	return others, err
}

// lockShards returns the shards that are this node's, and those of no node, and keeps them so
// until the transaction ends.
func (x *expirer) lockShards(ctx context.Context, tx pgx.Tx, list []expiredDelivery) (own map[int16]bool, err error) {
	var shards []int16
	for _, d := range list {
		if !slices.Contains(shards, d.shard) {
			shards = append(shards, d.shard)
		}
	}
	node := x.ownership.incarnation()
	var shard int16
	var mine bool
	read := func(rows pgx.Rows) error {
		own = make(map[int16]bool)
		_, err := pgx.ForEachRow(rows, []any{&shard, &mine}, func() error { own[shard] = mine && node != 0; return nil })
		return err
	}
	rows, err := tx.Query(ctx, x.sql(lockOwnShards), shards, node)
	if err != nil {
		return nil, err
	}
	if err := read(rows); err != nil {
		return nil, err
	}
	locked := make([]int16, 0, len(own))
	for shard := range own {
		locked = append(locked, shard)
	}
	// One that was taken just before it was locked may seem to be free by what was read then.
	if rows, err = tx.Query(ctx, x.sql(ownShards), locked, node); err != nil {
		return nil, err
	}
	return own, read(rows)
}

// keep reserves what is in shards of this node, if it is not being attempted.
func (x *expirer) keep(list []expiredDelivery, own map[int16]bool) {
	type webhook struct {
		no int64
		id string
	}
	events := make(map[webhook][]int64)
	for _, d := range list {
		if own[d.shard] && !x.asked[d.pair] {
			x.asked[d.pair] = true
			w := webhook{d.pair.webhook, d.webhookID}
			events[w] = append(events[w], d.pair.event)
		}
	}
	for w, events := range events {
		for event, token := range x.reserve(w.id, events) {
			x.reserved[deliveryPair{w.no, int64(event)}] = token
		}
	}
}

// close ends the reservations, once the transaction has ended.
func (x *expirer) close(committed bool) {
	for pair, token := range x.reserved {
		x.endReserved(pair, token, committed && x.ended[pair])
	}
}

// endExpired ends the pending deliveries of events, whose payloads were purged, to webhooks,
// element by element. What is being attempted stays. The caller holds looks.
func (s *Store) endExpired(ctx context.Context, webhookNos, events []int64) error {
	x := s.newExpirer()
	x.holds = true
	err := s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, indexed); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, s.sql(expiredOf), webhookNos, events)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, scanExpired)
		if err != nil {
			return err
		}
		_, err = x.end(ctx, tx, list)
		return err
	})
	x.close(err == nil)
	return err
}
