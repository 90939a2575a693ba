-- Selects what is pending without a payload, the oldest first, in the shards of a node and in those of none,
-- by the index of shard and event + 0, and these shards' owners.
-- $1 the node; $2 how many.
select q.webhook, q.event, q.shard, q.node, w.id
from (
	select p.webhook, p.event, p.shard, o.node
	from storageapi.shard_owners o
	cross join lateral (
		select webhook, event, shard from storageapi.pending
		where shard = o.shard and event + 0 < (select event from storageapi.marks where name = 'payloads')
		order by shard, event + 0 limit $2) p
	where o.node = $1 or not exists (select from storageapi.nodes n where n.node = o.node)
	order by p.event limit $2) q
cross join lateral (select id from storageapi.webhooks where no = q.webhook limit 1) w
order by q.event
