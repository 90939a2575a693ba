-- Selects the changes that a snapshot did not see, with what is pending by them: so each is read once,
-- however late its transaction is committed. The first row has the snapshot of this statement,
-- and the confirmed clock.
-- It passes over rows of other shards before it unnests them, which costs ten times as much as that.
-- $1 the transaction from which on the snapshot saw none; $2 transactions before, which ran; $3 shards.
select -1 as kind, 0::bigint as added, 0::smallint as shard, 0::bigint as webhook, 0::bigint as event,
	null::boolean as recovered, (select storageapi.confirmed_clock()) as due, 0 as attempts, 0 as before, pg_current_snapshot()::text as snapshot
union all
(select c.kind, c.added, u.shard, u.webhook, u.event, p.recovered, p.due, p.attempts, p.before, null
from (
	select * from storageapi.changes where added >= $1 and shards && $3::smallint[]
	union all
	select * from storageapi.changes where added = any($2::bigint[]) and shards && $3::smallint[]) c
cross join lateral unnest(c.shards, c.webhooks, c.events) as u (shard, webhook, event)
left join lateral (
	select * from storageapi.pending where webhook = u.webhook and event = u.event limit 1) p on true
where u.shard = any($3::smallint[]))
