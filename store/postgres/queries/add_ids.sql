-- Adds the ids of events, unless they are before the mark of the ids. It returns how many were to be added, and
-- how many of them are new. No two have the same account and id (deduplication key). See enqueue.
-- $1 accounts, $2 ids and $3 numbers, element by element.
with slots as materialized (
	select current, case when first >= current - 1 then first else 0 end as first, (select event from storageapi.marks where name = 'ids') as mark
	from (
		select (select last_value::integer from storageapi.id_slot) as current, coalesce(min(slot) filter (where not sealed), max(slot) + 1) as first
		from storageapi.id_slots
	) s
), input as materialized (
	select i.* from unnest($1::text[], $2::text[], $3::bigint[]) as i (account, id, event) cross join slots
	where i.event >= slots.mark order by i.account, i.id
), claimed as (
	insert into storageapi.event_ids as k (slot, account, id, event)
	select slots.first, account, id, event from input cross join slots
	on conflict (slot, account, id) do update set event = excluded.event where k.event < (select mark from slots)
	returning account, id, event
), again as (
	insert into storageapi.event_ids as k (slot, account, id, event)
	select slots.current, account, id, event from claimed cross join slots where slots.first <> slots.current
	on conflict (slot, account, id) do update set event = excluded.event where k.event < (select mark from slots)
	returning event
)
select (select count(*) from input), case when slots.first = slots.current then (select count(*) from claimed) else (select count(*) from again) end
from slots
