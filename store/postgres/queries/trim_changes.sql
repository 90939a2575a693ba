-- Removes changes that all nodes with shards have read, and returns their number. It begins at the
-- mark, to skip rows that were removed earlier and that other transactions may still see. A node
-- that takes shards later loads them with the effects of these changes.
-- $1 the maximum number, unless a single transaction made more.
with read as (
	select min(seen) as seen from storageapi.heartbeats b where exists (select from storageapi.shard_owners where node = b.node)
), range as materialized (
	select m.event as first, greatest(m.event + 1, coalesce(
		(select added from storageapi.changes where added >= m.event and added < r.seen order by added offset $1 limit 1), r.seen)) as after
	from storageapi.marks m cross join read r where m.name = 'changes' and m.event < r.seen
), gone as (
	delete from storageapi.changes c using range r where c.added >= r.first and c.added < r.after returning 1
), marked as (
	update storageapi.marks m set event = greatest(m.event, r.after) from range r where m.name = 'changes'
)
select count(*) from gone
