package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/webhooks"
)

var (
	expiredPending = query("expired_pending")
	endPending     = query("end_pending")
)

// ownShards selects those of the shards $1 that the node $2 or no node owns, and whether it is the
// node. lockOwnShards keeps these from being taken until the transaction ends.
const (
	ownShards = `
		select shard, node = $2 from storageapi.shard_owners o
		where shard = any($1::smallint[]) and (node = $2 or not exists (select from storageapi.nodes n where n.node = o.node))`
	lockOwnShards = ownShards + ` order by shard for share of o`
)

// A deliveryPair are the numbers of a delivery's webhook and event.
type deliveryPair struct{ webhook, event int64 }

// An expiredDelivery is pending, and its payload is past.
type expiredDelivery struct {
	pair      deliveryPair
	shard     int16
	webhookID string
}

// An expirer ends pending deliveries of this node's shards, and of those of no node, in a
// transaction, except those that are being attempted. Meanwhile it keeps them from being claimed.
// What this node owns and does not have in memory cannot come there meanwhile, since the caller
// holds looks.
type expirer struct {
	*Store
	reserved map[deliveryPair]uint64 // the tokens, 0 of what is not in memory
	asked    map[deliveryPair]bool   // whether they were reserved
	ended    map[deliveryPair]bool   // by the transaction
}

// endExpired ends about limit pending deliveries whose payloads are past, the oldest first, and
// returns how many. Other nodes end what is in their shards once they look. The caller holds looks.
func (s *Store) endExpired(ctx context.Context, limit int) (ended int, err error) {
	mark := s.owned.look.past.Load()
	x := &expirer{Store: s, reserved: make(map[deliveryPair]uint64), asked: make(map[deliveryPair]bool)}
	err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		x.ended = make(map[deliveryPair]bool)
		if _, err := tx.Exec(ctx, indexed); err != nil {
			return err
		}
		busy := 0 // what is under way must not hide the others
		for _, n := range s.underWay() {
			busy += n
		}
		rows, err := tx.Query(ctx, s.sql(expiredPending), s.ownership.incarnation(), limit+busy)
		if err != nil {
			return err
		}
		list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d expiredDelivery, err error) {
			return d, row.Scan(&d.pair.webhook, &d.pair.event, &d.shard, &d.webhookID)
		})
		if err != nil || len(list) == 0 {
			return err
		}
		return x.end(ctx, tx, list)
	})
	for pair, token := range x.reserved {
		s.endReserved(pair, token, err == nil && x.ended[pair])
	}
	if err != nil {
		return 0, err
	}
	if len(x.ended) < limit {
		s.owned.look.ended = mark
	}
	return len(x.ended), nil
}

// end ends the deliveries. It may run again, if the transaction does.
func (x *expirer) end(ctx context.Context, tx pgx.Tx, list []expiredDelivery) error {
	own, err := x.lockShards(ctx, tx, list)
	if err != nil {
		return err
	}
	x.keep(list, own)
	var hooks, events []int64
	for _, d := range list {
		mine, ends := own[d.shard]
		if _, free := x.reserved[d.pair]; ends && (free || !mine) {
			hooks, events = append(hooks, d.pair.webhook), append(events, d.pair.event)
		}
	}
	expired := webhooks.ExpiredAttempt(0, time.Now())
	rows, err := tx.Query(ctx, x.sql(endPending), hooks, events, expired.StartedAt, string(expired.Class), expired.Error)
	if err != nil {
		return err
	}
	var pair deliveryPair
	_, err = pgx.ForEachRow(rows, []any{&pair.webhook, &pair.event}, func() error { x.ended[pair] = true; return nil })
	return err
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
	read := func(rows pgx.Rows, err error) error {
		if err != nil {
			return err
		}
		var shard int16
		var mine bool
		own, shards = make(map[int16]bool), nil
		_, err = pgx.ForEachRow(rows, []any{&shard, &mine}, func() error {
			own[shard], shards = mine && node != 0, append(shards, shard)
			return nil
		})
		return err
	}
	if err := read(tx.Query(ctx, x.sql(lockOwnShards), shards, node)); err != nil {
		return nil, err
	}
	// One that was taken just before it was locked may seem to be free by what was read then.
	return own, read(tx.Query(ctx, x.sql(ownShards), shards, node))
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
