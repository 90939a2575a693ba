-- Selects the changes that an earlier snapshot did not see, each with its delivery if this is
-- pending. So each change is read once, even if its transaction commits late. The first row has the
-- snapshot of this statement and the confirmed time.
-- Rows of other shards are skipped before they are unnested, because unnesting costs ten times as
-- much.
-- $1 the first transaction after the earlier snapshot; $2 the transactions that were running then;
-- $3 shards.
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
