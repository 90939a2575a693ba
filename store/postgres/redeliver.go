package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/storageapi/storageapi/notices"
	"github.com/storageapi/storageapi/webhooks"
)

// requeue makes settled deliveries of the webhook $1, in the shard $2, pending again: those
// of the events $3 that are in one of the states $4, are not pending and have a payload.
// They are due now, in a lane of the kind $5. It returns their events.
const requeue = `
	insert into storageapi.queue (webhook, event, shard, kind, parked, due, attempts, before)
	select $1, i.event, $2, ` + newest + ` + $5::smallint, false, clock_timestamp(), a.number, a.number
	from unnest($3::bigint[]) as i (event)
	cross join lateral (
		select max(number) as number, (array_agg(state order by number desc) filter (where state > 0))[1] as state
		from storageapi.attempts where event = i.event and webhook = $1) a
	where a.state = any($4::smallint[]) and exists (select from storageapi.events where event = i.event and body is not null)
	on conflict (webhook, event) do nothing
	returning event`

// unskip removes the records that deliveries of the events $2 to the webhook $1 were skipped.
const unskip = `delete from storageapi.attempts where webhook = $1 and event = any($2::bigint[]) and number = 0 and state = 3`

// requeue makes settled deliveries pending again, and returns how many.
func (s *Store) requeue(ctx context.Context, tx pgx.Tx, account string, no int64, events []int64, states []int16, kind int16) (int, error) {
	rows, err := tx.Query(ctx, s.sql(requeue), no, shardOf(account), events, states, kind)
	if err != nil {
		return 0, err
	}
	pending, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(pending) == 0 {
		return 0, err
	}
	_, err = tx.Exec(ctx, s.sql(unskip), no, pending)
	return len(pending), err
}

// Redeliver implements [webhooks.Store].
func (s *Store) Redeliver(ctx context.Context, account, webhookID, eventID string, notice notices.Notice) error {
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
		return s.redeliver(ctx, tx, account, no, event, notice)
	})
	if err == nil {
		s.waker.notify()
	}
	return err
}

func (s *Store) redeliver(ctx context.Context, tx pgx.Tx, account string, no, event int64, notice notices.Notice) error {
	var leased bool
	err := tx.QueryRow(ctx, s.sql(`
		select exists (select from storageapi.leases l where l.account = $3 and l.webhook = q.webhook and l.event = q.event)
		from storageapi.queue q where q.webhook = $1 and q.event = $2 for update of q`), no, event, account).Scan(&leased)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // it was settled
		pending, err := s.requeue(ctx, tx, account, no, []int64{event}, []int16{stateDelivered, stateDead, stateSkipped}, live)
		if err == nil && pending == 0 {
			err = webhooks.ErrNotFound
		}
		if err != nil {
			return err
		}
	case err != nil || leased:
		return err
	}
	if err := s.makeDue(ctx, tx, account, no, event); err != nil {
		return err
	}
	return s.tell(ctx, tx, notice)
}

// makeDue makes a pending delivery the next one of its webhook, due now or before, and
// asks for a probe.
func (s *Store) makeDue(ctx context.Context, tx pgx.Tx, account string, no, event int64) error {
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

// lockShards locks shards until the transaction ends: nothing in them is leased until then.
func (s *Store) lockShards(ctx context.Context, tx pgx.Tx, list ...int16) error {
	_, err := tx.Exec(ctx, s.sql(`select shard from storageapi.shards where shard = any($1::smallint[]) order by shard for update`), list)
	return err
}
