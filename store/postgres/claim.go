package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/storageapi/storageapi/webhooks"
)

var errNoPayload = errors.New("the event's payload was purged")

const (
	promoteStep = 500                   // parked deliveries that a claim makes ready, at most
	maxScans    = 16                    // statements by which a claim finds lanes, at most
	maxBytes    = 4 << 20               // of the bodies of a claim, except that one alone may have more
	busyWait    = 2 * time.Millisecond  // if other nodes hold the locks of due deliveries
	restWait    = 20 * time.Millisecond // if the scanned lanes are not for this claim, and there are more
)

// A plan that PostgreSQL makes for empty tables must not be used when they are full. So the
// statements start from their parameters and never scan a whole table; one plan fits all
// cases and is made once. What a claim writes need not survive a crash of the database:
// the deliveries are due again then, under other tokens.
const (
	plain   = `select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true), ` + probed
	indexed = plain + `, set_config('enable_bitmapscan', 'off', true), set_config('enable_hashagg', 'off', true)`
	inClaim = plain + `, set_config('synchronous_commit', 'off', true), ` + unidle
)

// lock locks those of the shards that no other transaction has locked, and passes their
// list to the statements that follow.
const lock = `
	select list, set_config('storageapi_claim.shards', list::text, true) from (
		select coalesce(array_agg(shard), '{}') as list from (
			select shard from storageapi.shards where shard = any($1::smallint[]) order by shard for update skip locked) l) l`

// locked is the list of shards that lock has locked.
const locked = `current_setting('storageapi_claim.shards')::smallint[]`

// promote makes parked deliveries ready that are due. (The subquery fixes the time, so that
// an index can be scanned up to it.)
const promote = `
	update storageapi.queue set parked = false, kind = ` + newest + ` + (kind & 1::smallint) where ctid = any(array(
		select ctid from storageapi.queue where parked and due <= (select clock_timestamp()) order by due limit $1 for update skip locked))`

// prolong extends the leases of finished attempts that are about to be settled. Other nodes
// may have ended them before.
const prolong = `
	update storageapi.leases set until = clock_timestamp() + $2 * interval '1 microsecond' where ctid = any(array(
		select l.at from unnest($1::bigint[]) as t (token)
		cross join lateral (
			select ctid as at from storageapi.leases where token = t.token and shard = any(` + locked + `) limit 1 for update skip locked) l))`

// expire ends the expired leases of the accounts $1 whose shards are locked. Their
// attempts count.
const expire = `
	with gone as (
		delete from storageapi.leases where ctid = any(array(
			select ctid from storageapi.leases
			where account = any($1::text[]) and shard = any(` + locked + `) and until <= clock_timestamp() for update skip locked))
		returning webhook, event)
	update storageapi.queue set attempts = attempts + 1 where ctid = any(array(
		select q.at from gone cross join lateral (
			select ctid as at from storageapi.queue where webhook = gone.webhook and event = gone.event limit 1) q))`

// lease leases ready deliveries of the lanes by round robin: for each webhook up to its
// cap, and for each account at most $8, unless that is 0. It reads no more of a lane than
// it could lease if every other lane had one, and stops before the bodies exceed $9 bytes.
// It returns how many it has leased, and whether there may be more. Lanes have the place
// of the first lane of their account.
//
// It returns no rows of deliveries: a server that sends to a node that does not read
// waits, and keeps its locks.
//
// It uses lookups and sorts, and no join that could become a nested loop over all pairs.
const lease = `
	with given as (
		select * from unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::integer[], $5::text[], $6::bigint[])
		with ordinality as l (webhook, shard, kind, cap, account, first, rank)
		where shard = any(` + locked + `)
	), lane as materialized (
		select *, max(case when rank = first then (select count(*) from storageapi.leases where account = given.account) end) over (partition by first) as account_held
		from given
	), bound as materialized (
		select greatest($7 - count(*) + 1, 1) as n from lane
	), ready as (
		select lane.*, h.held, r.event, r.attempts, r.before,
			row_number() over (partition by lane.webhook order by lane.kind & 1, r.due, r.event) as place,
			row_number() over (partition by lane.webhook, lane.kind order by r.due, r.event) as turn
		from lane
		cross join lateral (select count(*) as held from storageapi.leases where account = lane.account and webhook = lane.webhook) h
		cross join lateral (
			select q.event, q.due, q.attempts, q.before from storageapi.queue q
			where not q.parked and q.kind = lane.kind and q.shard = lane.shard and q.webhook = lane.webhook and (h.held = 0 or not exists (
				select from storageapi.leases l where l.account = lane.account and l.webhook = q.webhook and l.event = q.event))
			order by q.due, q.event limit greatest(least(lane.cap - h.held, (select n from bound)), 0)) r
	), fair as (
		select *, row_number() over (partition by first order by kind & 1, turn, rank) as account_place
		from ready where place + held <= cap
	), chosen as materialized (
		select fair.*, row_number() over (order by kind & 1, turn, rank) as number from fair
		where $8 = 0 or account_place + account_held <= $8
		order by kind & 1, turn, rank limit $7
	), sized as materialized (
		select chosen.*, sum(s.bytes) over (order by number) as bytes from chosen cross join lateral (
			select coalesce((select octet_length(body) from storageapi.events where event = chosen.event limit 1), 0) as bytes) s
	), leased as (
		insert into storageapi.leases (token, shard, webhook, event, account, until)
		select $10 + number, shard, webhook, event, account, clock_timestamp() + $11 * interval '1 microsecond' from sized where number = 1 or bytes <= $9
		returning 1
	)
	select (select count(*) from leased), coalesce(bool_or(turn = (select n from bound) or number > 1 and bytes > $9), false) from sized`

// move suspends the ready deliveries of lanes, or resumes them, if their shards are locked:
// $5 deliveries at most. Leased deliveries stay where they are.
const move = `
	update storageapi.queue set kind = kind # 2::smallint where ctid = any(array(
		select q.at from unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::text[]) as l (webhook, shard, kind, account)
		cross join lateral (
			select q.ctid as at from storageapi.queue q
			where not q.parked and q.kind = l.kind and q.shard = l.shard and q.webhook = l.webhook and not exists (
				select from storageapi.leases where account = l.account and webhook = q.webhook and event = q.event)
			order by q.due, q.event limit $5) q
		where l.shard = any(` + locked + `) limit $5))`

// ClaimDeliveries implements [webhooks.Store].
//
// It finds lanes with ready deliveries without locks. Then it locks their shards, except
// those that other nodes have locked, and leases what is ready there now. A shard holds
// all webhooks of an account, so that only settlements change what the caps count.
//
// It suspends the pending deliveries of webhooks that are not awake, so that later claims
// need not skip them, and resumes them soon after the webhooks are awake.
//
// While claims come back full, they scan only lanes most of the time.
//
// Leases of a claim that failed are ended by later claims.
func (s *Store) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) (tasks []webhooks.Task, wait time.Duration, err error) {
	err = s.write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		if err := s.checkClock(ctx, conn); err != nil {
			return err
		}
		if s.renewal.begins() {
			s.renew(ctx, conn)
		}
		lanesOnly := len(claim.Webhooks) == 0 && s.turns.lanesOnly()
		l := leasing{Store: s, claim: claim}
		if err = l.run(ctx, conn, lanesOnly); err == nil && lanesOnly && len(l.tasks) < claim.Limit {
			l.remain()
			if err = l.run(ctx, conn, false); len(l.tasks) > 0 {
				err = nil // they are leased
			}
		}
		tasks, wait = l.tasks, l.wait
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return tasks, wait, nil
}
