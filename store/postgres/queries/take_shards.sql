-- Makes the node $1, if it is alive, the owner of those of the shards $2 whose owners are in $3: 0, for
-- none, and nodes that were removed.
with me as (
	select node from storageapi.nodes where node = $1 for key share
), free as (
	select shard from storageapi.shard_owners where shard = any($2::smallint[]) and node = any($3::bigint[]) order by shard for update
)
update storageapi.shard_owners o set node = me.node, epoch = o.epoch + 1 from free, me where o.shard = free.shard
returning o.shard
