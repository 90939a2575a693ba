-- Selects a page of the pending deliveries of shards: for each shard, the next rows below a
-- position, in descending order of event and webhook. It uses the index on shard and event + 0. See
-- loadPage.
-- $1 shards, and $2 events and $3 webhooks of the positions, as parallel lists; $4 the maximum
-- number of rows per shard.
select p.shard, p.webhook, p.event, p.recovered, p.due, p.attempts, p.before
from unnest($1::smallint[], $2::bigint[], $3::bigint[]) as s (shard, event, webhook)
cross join lateral (
	select * from storageapi.pending
	where shard = s.shard and event + 0 <= s.event and (event + 0 < s.event or webhook < s.webhook)
	order by shard desc, event + 0 desc, webhook desc limit $4) p
