package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

var errNoPayload = errors.New("the event's payload was purged")

const (
	promoteStep = 500                   // parked deliveries that a claim makes ready at most
	maxLooks    = 16                    // statements that a claim may look for lanes with
	busyWait    = 2 * time.Millisecond  // if others hold what is due
	restWait    = 20 * time.Millisecond // if what was looked at is not for this claim, and there is more
)

// What PostgreSQL plans for tables that happen to be empty must not be used when they
// are full: the statements are written so that they start from what they are given,
// and never read a table through. What a claim writes need not survive a crash of the
// database, and leases do not: the deliveries are due again then, under other tokens.
//
// A node that stands still in a claim is cut off, so that its locks end.
const (
	plain   = `select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true)`
	indexed = plain + `, set_config('enable_bitmapscan', 'off', true), set_config('enable_hashagg', 'off', true)`
	inClaim = plain + `, set_config('synchronous_commit', 'off', true), set_config('idle_in_transaction_session_timeout', '5s', true)`
)

// lock locks those of the shards that nobody has locked.
const lock = `select shard from storageapi.shards where shard = any($1::smallint[]) order by shard for update skip locked`

// promote makes ready what was parked and is due.
const promote = `
	update storageapi.queue set parked = false where ctid = any(array(
		select ctid from storageapi.queue where parked and due <= clock_timestamp() order by due limit $1 for update skip locked))`

// nextDue tells in how many seconds something is due, or a lease runs out, that is
// not yet; null if nothing is.
const nextDue = `
	select extract(epoch from least(
		(select due from storageapi.queue where parked order by due limit 1),
		(select min(until) from storageapi.leases where until > clock_timestamp())) - clock_timestamp())::float8`

// expire ends the leases that have run out in some shards. The attempts that were
// going to be made count.
const expire = `
	with gone as (
		delete from storageapi.leases where ctid = any(array(
			select ctid from storageapi.leases where shard = any($1) and until <= clock_timestamp() for update skip locked))
		returning webhook, event)
	update storageapi.queue set attempts = attempts + 1 where ctid = any(array(
		select q.at from gone cross join lateral (
			select ctid as at from storageapi.queue where webhook = gone.webhook and event = gone.event limit 1) q))`

// lease leases what is ready in the lanes: of each webhook as many as it may have
// besides those that are leased, in turns, and at most $7 of an account, if that is
// not 0. The shards in $5 are locked.
const lease = `
	with lane as (
		select * from unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::integer[], $10::text[])
		with ordinality as l (webhook, shard, kind, cap, account, rank)
	), held as materialized (
		select webhook, account from storageapi.leases where shard = any($5::smallint[])
	), of_webhook as (
		select webhook, count(*) as n from held group by webhook
	), of_account as (
		select account, count(*) as n from held group by account
	), ready as (
		select lane.*, r.event, r.attempts, r.before, coalesce(of_webhook.n, 0) as held,
			row_number() over (partition by lane.webhook order by lane.kind, r.due, r.event) as place,
			row_number() over (partition by lane.webhook, lane.kind order by r.due, r.event) as turn
		from lane
		left join of_webhook on of_webhook.webhook = lane.webhook
		cross join lateral (
			select q.event, q.due, q.attempts, q.before from storageapi.queue q
			where not q.parked and q.kind = lane.kind and q.shard = lane.shard and q.webhook = lane.webhook and (of_webhook.n is null or not exists (
				select from storageapi.leases l where l.shard = q.shard and l.webhook = q.webhook and l.event = q.event))
			order by q.due, q.event limit greatest(least(lane.cap - coalesce(of_webhook.n, 0), $6), 0)) r
	), fair as (
		select ready.*, coalesce(of_account.n, 0) as account_held,
			row_number() over (partition by ready.account order by kind, turn, rank) as account_place
		from ready left join of_account on of_account.account = ready.account
		where place + held <= cap
	), chosen as materialized (
		select fair.*, row_number() over (order by kind, turn, rank) as number from fair
		where $7 = 0 or account_place + account_held <= $7
		order by kind, turn, rank limit $6
	), leased as (
		insert into storageapi.leases (token, shard, webhook, event, account, until)
		select $8 + number, shard, webhook, event, account, clock_timestamp() + $9 * interval '1 microsecond' from chosen
	)
	select c.number, c.webhook, c.shard, c.kind, c.event, c.attempts, c.before, e.id, e.type, e.at, e.body, ` + webhookColumns + `
	from chosen c
	cross join lateral (select * from storageapi.webhooks where no = c.webhook limit 1) w
	left join lateral (select * from storageapi.events where event = c.event limit 1) e on true
	order by c.number`

// ClaimDeliveries implements [webhooks.Store].
//
// It looks without locks which lanes have something ready that the claim allows,
// then locks their shards, but for those that others have locked, and leases what is
// ready there now. A shard holds all webhooks of an account, so nothing that the caps
// are about changes meanwhile but by settlements.
func (s *Store) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) (tasks []webhooks.Task, wait time.Duration, err error) {
	err = s.write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tasks, wait, err = s.claim(ctx, conn, &claim)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return tasks, wait, nil
}

func (s *Store) claim(ctx context.Context, conn *pgxpool.Conn, claim *webhooks.Claim) (tasks []webhooks.Task, wait time.Duration, err error) {
	sight, err := s.look(ctx, conn, claim)
	if err != nil {
		return nil, 0, err
	}
	wait = s.options.poll*3/4 + rand.N(s.options.poll/2+1)
	if sight.next != nil {
		wait = min(wait, max(time.Duration(*sight.next*float64(time.Second)), time.Millisecond))
	}
	wanted := sight.shards()
	locked := 0
	if len(wanted) > 0 {
		if tasks, locked, err = s.lease(ctx, conn, claim, sight.lanes, wanted); err != nil {
			_, _ = conn.Exec(ctx, `rollback`)
			return nil, 0, err
		}
	}
	switch {
	case len(tasks) == claim.Limit || sight.promoted == promoteStep || sight.rest && len(tasks) > 0:
		wait = 0
	case locked < len(wanted):
		wait = min(wait, busyWait)
	case sight.rest:
		wait = min(wait, restWait)
	}
	return tasks, wait, nil
}

// lease locks shards and leases what is ready of the lanes in those that it got, in
// two round trips.
func (s *Store) lease(ctx context.Context, conn *pgxpool.Conn, claim *webhooks.Claim, lanes []lane, wanted []int16) (tasks []webhooks.Task, locked int, err error) {
	batch := &pgx.Batch{}
	batch.Queue(`begin`)
	batch.Queue(inClaim)
	var got []int16
	batch.Queue(s.sql(lock), wanted).Query(func(rows pgx.Rows) error {
		got, err = pgx.CollectRows(rows, pgx.RowTo[int16])
		return err
	})
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, 0, err
	}
	var nos []int64
	var inShards, kinds []int16
	var caps []int32
	var accounts []string
	for _, l := range lanes {
		if slices.Contains(got, l.shard) {
			nos, inShards, kinds, caps = append(nos, l.webhook), append(inShards, l.shard), append(kinds, l.kind), append(caps, int32(l.cap))
			accounts = append(accounts, l.account)
		}
	}
	base := rand.Int64() >> 1 // no process takes another's token for its own
	var served [2]*lane
	batch = &pgx.Batch{}
	batch.Queue(s.sql(expire), got)
	batch.Queue(s.sql(lease), nos, inShards, kinds, caps, got, claim.Limit, claim.PerAccount, base, claim.Lease.Microseconds(), accounts).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			task, l, err := s.scanTask(rows, base)
			if err != nil {
				return err
			}
			tasks, served[l.kind] = append(tasks, task), &l
		}
		return rows.Err()
	})
	batch.Queue(`commit`)
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		return nil, 0, err
	}
	s.turns.served(claim.PerWebhook == 0, served)
	return tasks, len(got), nil
}

// scanTask reads a row of lease, and of which lane it is.
func (s *Store) scanTask(rows pgx.Rows, first int64) (task webhooks.Task, l lane, err error) {
	var number, event int64
	var r webhookRow
	var attempts, before int
	var id, eventType *string
	var at *time.Time
	var body []byte
	err = rows.Scan(append([]any{&number, &l.webhook, &l.shard, &l.kind, &event, &attempts, &before, &id, &eventType, &at, &body}, r.fields()...)...)
	if err != nil {
		return task, l, err
	}
	task = webhooks.Task{Attempt: attempts + 1, Before: before, Token: uint64(first + number)}
	if task.Webhook, task.Err = s.webhook(&r); task.Err != nil {
		task.Webhook.ID = r.id
	}
	if id == nil || eventType == nil || at == nil {
		task.Err = errNoPayload
		return task, l, nil
	}
	task.Event = webhooks.Envelope{ID: *id, Account: r.account, Type: webhooks.EventType(*eventType), Timestamp: utc(*at), Body: body}
	if body == nil && task.Err == nil {
		task.Err = errNoPayload
	}
	return task, l, nil
}
