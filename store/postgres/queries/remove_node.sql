-- Removes the node $1 and makes its shards free, if $2 is null or the counter of its heartbeat is
-- still $2. It waits for settlements of the node, which lock its row.
with late as (
	delete from storageapi.heartbeats where node = $1 and ($2::bigint is null or beat = $2) returning node
), gone as (
	delete from storageapi.nodes n using late where n.node = late.node returning n.node
)
update storageapi.shard_owners o set node = 0 from gone where o.node = gone.node returning o.shard
