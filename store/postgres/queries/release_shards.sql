-- Makes the shards $2 of the node $1 free. It waits for settlements of the node, which lock its
-- row.
with me as (
	select node from storageapi.nodes where node = $1 for update
)
update storageapi.shard_owners o set node = 0 from me where o.node = me.node and o.shard = any($2::smallint[])
returning o.shard
