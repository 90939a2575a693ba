-- Selects a page of what is pending in shards: of each shard the first rows after a place, in the order of
-- events and webhooks, by the index of shard and event + 0. See loadPage.
-- $1 shards, $2 events and $3 webhooks of the places, element by element; $4 how many rows of each shard.
select p.shard, p.webhook, p.event, p.recovered, p.due, p.attempts, p.before
from unnest($1::smallint[], $2::bigint[], $3::bigint[]) as s (shard, event, webhook)
cross join lateral (
	select * from storageapi.pending
	where shard = s.shard and event + 0 >= s.event and (event + 0 > s.event or webhook > s.webhook)
	order by shard, event + 0, webhook limit $4) p
