-- Selects the snapshot from which on a node reads the changes of shards that it has taken, as the first row, and
-- what probes were requested there before. See changes_since.
-- $1 shards.
select -1 as kind, pg_snapshot_xmin(s)::text::bigint as added, 0::smallint as shard, pg_snapshot_xmax(s)::text::bigint as webhook, 0::bigint as event,
	null::boolean as recovered, (select storageapi.confirmed_clock()) as due, 0 as attempts, 0 as before, array(select x::text::bigint from pg_snapshot_xip(s) x) as running
from pg_current_snapshot() s
union all
select c.kind, c.added, u.shard, u.webhook, u.event, null, null, null, null, null
from storageapi.changes c cross join lateral unnest(c.shards, c.webhooks, c.events) as u (shard, webhook, event)
where c.kind = 3 and u.shard = any($1::smallint[])
