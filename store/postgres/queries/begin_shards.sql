-- The first row has the snapshot from which a node reads the changes of shards that it has taken
-- (see changes_since.sql), and the confirmed time. The other rows are the probes that were
-- requested in these shards before.
-- $1 shards.
select -1 as kind, 0::bigint as added, 0::smallint as shard, 0::bigint as webhook, 0::bigint as event,
	null::boolean as recovered, (select storageapi.confirmed_clock()) as due, 0 as attempts, 0 as before, pg_current_snapshot()::text as snapshot
union all
select c.kind, c.added, u.shard, u.webhook, u.event, null, null, null, null, null
from storageapi.changes c cross join lateral unnest(c.shards, c.webhooks, c.events) as u (shard, webhook, event)
where c.kind = 3 and u.shard = any($1::smallint[])
