package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/webhooks"
)

// owe makes settled deliveries of the webhook $1, of the shard $2, owed: those of the
// events $3 that are in one of the states $4, are not owed and have a payload. They
// are due now, of the kind $5. It returns their events.
const owe = `
	insert into storageapi.queue (webhook, event, shard, kind, parked, due, attempts, before)
	select $1, i.event, $2, ` + newest + ` + $5::smallint, false, clock_timestamp(), a.number, a.number
	from unnest($3::bigint[]) as i (event)
	cross join lateral (
		select max(number) as number, (array_agg(state order by number desc) filter (where state > 0))[1] as state
		from storageapi.attempts where event = i.event and webhook = $1) a
	where a.state = any($4::smallint[]) and exists (select from storageapi.events where event = i.event and body is not null)
	on conflict (webhook, event) do nothing
	returning event`

// unskip forgets that deliveries of the webhook $1, of the events $2, were skipped.
const unskip = `delete from storageapi.attempts where webhook = $1 and event = any($2::bigint[]) and number = 0 and state = 3`

// owe makes deliveries owed, and returns how many.
func (s *Store) owe(ctx context.Context, tx pgx.Tx, account string, no int64, events []int64, states []int16, kind int16) (int, error) {
	rows, err := tx.Query(ctx, s.sql(owe), no, shardOf(account), events, states, kind)
	if err != nil {
		return 0, err
	}
	owed, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(owed) == 0 {
		return 0, err
	}
	_, err = tx.Exec(ctx, s.sql(unskip), no, owed)
	return len(owed), err
}

// Redeliver implements [webhooks.Store].
func (s *Store) Redeliver(ctx context.Context, account, webhookID, eventID string) error {
	err := s.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.lockShards(ctx, tx, shardOf(account)); err != nil {
			return err
		}
		var no, event int64
		err := tx.QueryRow(ctx, s.sql(`select no from storageapi.webhooks where account = $1 and id = $2 for key share`), account, webhookID).Scan(&no)
		if err != nil {
			return none(err)
		}
		err = tx.QueryRow(ctx, s.sql(`
			select event from storageapi.events where account = $1 and id = $2 and known and body is not null`), account, eventID).Scan(&event)
		if err != nil {
			return none(err)
		}
		return s.redeliver(ctx, tx, account, no, event)
	})
	if err == nil {
		s.waker.tell()
	}
	return err
}

func (s *Store) redeliver(ctx context.Context, tx pgx.Tx, account string, no, event int64) error {
	var leased bool
	err := tx.QueryRow(ctx, s.sql(`
		select exists (select from storageapi.leases l where l.account = $3 and l.webhook = q.webhook and l.event = q.event)
		from storageapi.queue q where q.webhook = $1 and q.event = $2 for update of q`), no, event, account).Scan(&leased)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // it was settled
		owed, err := s.owe(ctx, tx, account, no, []int64{event}, []int16{stateDelivered, stateDead, stateSkipped}, live)
		if err == nil && owed == 0 {
			err = webhooks.ErrNotFound
		}
		if err != nil {
			return err
		}
		return s.expedite(ctx, tx, account, no, event)
	case err != nil || leased:
		return err
	}
	return s.expedite(ctx, tx, account, no, event)
}

// expedite makes a delivery that is owed the next one of its webhook, due now or
// sooner, and asks for an attempt.
func (s *Store) expedite(ctx context.Context, tx pgx.Tx, account string, no, event int64) error {
	_, err := tx.Exec(ctx, s.sql(`
		update storageapi.queue set parked = false, kind = `+newest+`, due = least(clock_timestamp(), (
			select min(r.due) - interval '1 microsecond'
			from (select (g.kind + k.kind)::smallint as kind from `+generations+` cross join unnest('{0,2}'::smallint[]) as k (kind)) s cross join lateral (
				select due from storageapi.queue q where not q.parked and q.kind = s.kind and q.shard = $3 and q.webhook = $1 and q.event <> $2
				order by q.due limit 1) r))
		where webhook = $1 and event = $2`), no, event, shardOf(account))
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, s.sql(askProbe), no)
	return err
}

// lockShards keeps claims, and whatever else locks shards, from these until the
// transaction ends: nothing in them becomes leased.
func (s *Store) lockShards(ctx context.Context, tx pgx.Tx, list ...int16) error {
	_, err := tx.Exec(ctx, s.sql(`select shard from storageapi.shards where shard = any($1::smallint[]) order by shard for update`), list)
	return err
}
