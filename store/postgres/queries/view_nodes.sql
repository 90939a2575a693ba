-- Reads the nodes, the counters of their heartbeats, which heartbeats have expired, which nodes
-- need not be notified, and the owners of all shards.
select array_agg(node order by node), array_agg(beat order by node), array_agg(until < clock_timestamp() order by node),
	array_agg(node) filter (where busy), (select array_agg(node order by shard) from storageapi.shard_owners)
from storageapi.heartbeats
