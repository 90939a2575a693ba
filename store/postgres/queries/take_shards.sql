-- Makes the node $1, if it is registered, the owner of those shards in $2 whose owner is in $3: 0,
-- which means no owner, or a removed node.
with me as (
	select node from storageapi.nodes where node = $1 for key share
), free as (
	select shard from storageapi.shard_owners where shard = any($2::smallint[]) and node = any($3::bigint[]) order by shard for update
)
update storageapi.shard_owners o set node = me.node, epoch = o.epoch + 1 from free, me where o.shard = free.shard
returning o.shard
