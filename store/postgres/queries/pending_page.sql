-- Selects a page of what is pending in shards: of each shard the last rows before a place, in the descending
-- order of events and webhooks, by the index of shard and event + 0. See loadPage.
-- $1 shards, $2 events and $3 webhooks of the places, element by element; $4 how many rows of each shard.
select p.shard, p.webhook, p.event, p.recovered, p.due, p.attempts, p.before
from unnest($1::smallint[], $2::bigint[], $3::bigint[]) as s (shard, event, webhook)
cross join lateral (
	select * from storageapi.pending
	where shard = s.shard and event + 0 <= s.event and (event + 0 < s.event or webhook < s.webhook)
	order by shard desc, event + 0 desc, webhook desc limit $4) p
