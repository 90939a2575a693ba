package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

var (
	expiredPending = query("expired_pending")
	endPending     = query("end_pending")
)

// lockShards selects those of the shards $1 that are owned by one of the nodes $2 still, and keeps them
// from being taken until the transaction ends.
const lockShards = `
	select shard from storageapi.shard_owners where shard = any($1::smallint[]) and node = any($2::bigint[]) order by shard for share`

// A deliveryPair are the numbers of a delivery's webhook and event.
type deliveryPair struct{ webhook, event int64 }

// An expiredDelivery is pending, and its payload is past.
type expiredDelivery struct {
	pair      deliveryPair
	shard     int16
	owner     int64 // this node, or one that is none
	webhookID string
}

// endExpired ends about limit pending deliveries whose payloads are past, the oldest first, in
// this node's shards and in those of no node, and returns how many. Other nodes end what is in
// their shards once they look. What is being attempted stays; what is to end is kept from being claimed
// meanwhile, or, what this node owns and does not have in memory, cannot come there: the caller holds looks.
func (s *Store) endExpired(ctx context.Context, limit int) (ended int, err error) {
	mark, node := s.owned.look.past.Load(), s.ownership.incarnation()
	step := limit
	for _, n := range s.underWay() { // what is under way must not hide the others
		step += n
	}
	var list []expiredDelivery
	err = s.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		list, err = rowsOf(ctx, told{conn, indexed}, func(row pgx.CollectableRow) (d expiredDelivery, err error) {
			return d, row.Scan(&d.pair.webhook, &d.pair.event, &d.shard, &d.owner, &d.webhookID)
		}, s.sql(expiredPending), node, step)
		return err
	})
	if err != nil {
		return 0, err
	}
	reserved := s.reserveExpired(list, node)
	list = slices.DeleteFunc(list, func(d expiredDelivery) bool {
		_, free := reserved[d.pair]
		return d.owner == node && !free
	})
	gone := make(map[deliveryPair]bool)
	if len(list) > 0 {
		err = s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
			clear(gone)
			return s.end(ctx, tx, list, gone)
		})
	}
	for pair, token := range reserved {
		s.endReserved(pair, token, err == nil && gone[pair])
	}
	if err != nil {
		return 0, err
	}
	if len(gone) < limit {
		s.owned.look.ended = mark
	}
	return len(gone), nil
}

// reserveExpired reserves what is of this node, if it is not being attempted, and returns the tokens:
// 0 of what is not in memory.
func (s *Store) reserveExpired(list []expiredDelivery, node int64) map[deliveryPair]uint64 {
	type webhook struct {
		no int64
		id string
	}
	events := make(map[webhook][]int64)
	for _, d := range list {
		if d.owner == node {
			w := webhook{d.pair.webhook, d.webhookID}
			events[w] = append(events[w], d.pair.event)
		}
	}
	reserved := make(map[deliveryPair]uint64)
	for w, events := range events {
		for event, token := range s.reserve(w.id, events) {
			reserved[deliveryPair{w.no, int64(event)}] = token
		}
	}
	return reserved
}

// end ends the deliveries whose shards have the owners still, and notes which it has ended.
func (s *Store) end(ctx context.Context, tx pgx.Tx, list []expiredDelivery, ended map[deliveryPair]bool) error {
	if _, err := tx.Exec(ctx, indexed); err != nil {
		return err
	}
	var shards []int16
	var owners, hooks, events []int64
	for _, d := range list {
		shards, owners = append(shards, d.shard), append(owners, d.owner)
	}
	locked, err := rowsOf(ctx, tx, pgx.RowTo[int16], s.sql(lockShards), shards, owners)
	if err != nil {
		return err
	}
	for _, d := range list {
		if slices.Contains(locked, d.shard) {
			hooks, events = append(hooks, d.pair.webhook), append(events, d.pair.event)
		}
	}
	expired := webhooks.ExpiredAttempt(0, time.Now())
	rows, err := tx.Query(ctx, s.sql(endPending), hooks, events, expired.StartedAt, string(expired.Class), expired.Error)
	if err != nil {
		return err
	}
	var pair deliveryPair
	_, err = pgx.ForEachRow(rows, []any{&pair.webhook, &pair.event}, func() error { ended[pair] = true; return nil })
	return err
}
