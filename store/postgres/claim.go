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
	promoteStep = 500                   // parked deliveries that a claim makes ready at most
	maxLooks    = 16                    // statements that a claim may look for lanes with
	maxBytes    = 4 << 20               // of the bodies of a claim, unless one alone has more
	busyWait    = 2 * time.Millisecond  // if others hold what is due
	restWait    = 20 * time.Millisecond // if what was looked at is not for this claim, and there is more
)

// What PostgreSQL plans for tables that happen to be empty must not be used when they
// are full: the statements are written so that they start from what they are given,
// and never read a table through. So one plan does for all, and is made once. What a claim writes need not survive a crash of the
// database, and leases do not: the deliveries are due again then, under other tokens.
const (
	plain   = `select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true), ` + probed
	indexed = plain + `, set_config('enable_bitmapscan', 'off', true), set_config('enable_hashagg', 'off', true)`
	inClaim = plain + `, set_config('synchronous_commit', 'off', true), ` + unidle
)

// lock locks those of the shards that nobody has locked, and leaves word of them to the
// statements that follow.
const lock = `
	select list, set_config('storageapi_claim.shards', list::text, true) from (
		select coalesce(array_agg(shard), '{}') as list from (
			select shard from storageapi.shards where shard = any($1::smallint[]) order by shard for update skip locked) l) l`

// locked are the shards that lock has locked.
const locked = `current_setting('storageapi_claim.shards')::smallint[]`

// promote makes ready what was parked and is due. (As a subquery the time is of one moment,
// and an index can be gone through up to it.)
const promote = `
	update storageapi.queue set parked = false, kind = ` + newest + ` + (kind & 1::smallint) where ctid = any(array(
		select ctid from storageapi.queue where parked and due <= (select clock_timestamp()) order by due limit $1 for update skip locked))`

// prolong leases anew what is about to be settled, when some leases have run out. Others may have
// ended that before.
const prolong = `
	update storageapi.leases set until = clock_timestamp() + $2 * interval '1 microsecond' where ctid = any(array(
		select l.at from unnest($1::bigint[]) as t (token)
		cross join lateral (
			select ctid as at from storageapi.leases where token = t.token and shard = any(` + locked + `) limit 1 for update skip locked) l))`

// expire ends the leases of the accounts $1 that have run out, if their shards are
// locked. The attempts that were going to be made count.
const expire = `
	with gone as (
		delete from storageapi.leases where ctid = any(array(
			select ctid from storageapi.leases
			where account = any($1::text[]) and shard = any(` + locked + `) and until <= clock_timestamp() for update skip locked))
		returning webhook, event)
	update storageapi.queue set attempts = attempts + 1 where ctid = any(array(
		select q.at from gone cross join lateral (
			select ctid as at from storageapi.queue where webhook = gone.webhook and event = gone.event limit 1) q))`

// lease leases what is ready in the lanes: of each webhook as many as it may have
// besides those that are leased, in turns, and at most $8 of an account, if that is
// not 0. Of a lane it looks at no more than could be leased if each of the others had
// one, and it ends before the bodies are more than $9 bytes. It tells how many it has
// leased, and whether there may be more. Lanes have the place of the first one of their
// account.
//
// It returns no more than that: a server that writes to a node which does not read
// waits, and what it has locked stays so.
//
// It looks things up and sorts, and joins nothing that could be joined by looking at
// every pair.
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

// move puts aside what is ready in lanes, or takes it back, if their shards are locked:
// $5 deliveries at most. What is leased stays where it is.
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
// It looks without locks which lanes have something ready that the claim allows,
// then locks their shards, but for those that others have locked, and leases what is
// ready there now. A shard holds all webhooks of an account, so nothing that the caps
// are about changes meanwhile but by settlements.
//
// What is owed to webhooks that are not awake it puts aside, so that later claims need
// not pass by. It is taken back soon after they are.
//
// While claims come back full, what else there is to see can wait a little.
//
// What a claim that failed has leased nevertheless is given back by those after it.
func (s *Store) ClaimDeliveries(ctx context.Context, claim webhooks.Claim) (tasks []webhooks.Task, wait time.Duration, err error) {
	err = s.write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		if err := s.checkClock(ctx, conn); err != nil {
			return err
		}
		if s.renewal.begins() {
			s.renew(ctx, conn)
		}
		brief := len(claim.Webhooks) == 0 && s.turns.brief()
		l := leasing{Store: s, claim: claim}
		if err = l.run(ctx, conn, brief); err == nil && brief && len(l.tasks) < claim.Limit {
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
