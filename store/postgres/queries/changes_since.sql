-- Selects the changes that a snapshot did not see, with what is pending by them: so each is seen once,
-- however late its transaction is committed. The first row has the snapshot of this statement.
-- $1 the transaction from which on it saw none; $2 transactions before, which ran; $3 shards.
select -1 as kind, pg_snapshot_xmin(s)::text::bigint as added, 0::smallint as shard, pg_snapshot_xmax(s)::text::bigint as webhook, 0::bigint as event,
	null::boolean as recovered, (select storageapi.confirmed_clock()) as due, 0 as attempts, 0 as before, array(select x::text::bigint from pg_snapshot_xip(s) x) as running
from pg_current_snapshot() s
union all
(with change as materialized (
	select c.kind, c.added, u.shard, u.webhook, u.event
	from (
		select * from storageapi.changes where added >= $1
		union all
		select * from storageapi.changes where added = any($2::bigint[])) c
	cross join lateral unnest(c.shards, c.webhooks, c.events) as u (shard, webhook, event)
	where u.shard = any($3::smallint[])
)
select c.kind, c.added, c.shard, c.webhook, c.event, p.recovered, p.due, p.attempts, p.before, null
from change c left join lateral (
	select * from storageapi.pending where webhook = c.webhook and event = c.event limit 1) p on true)
