-- Adds the IDs of events, except events before the mark of the IDs. It returns how many IDs were to
-- be added, and how many of them are new. No two events may have the same account and ID. See
-- enqueue.sql for the part to which IDs are added.
-- $1 accounts, $2 ids and $3 event numbers, as parallel lists; $4 the latest time that counts as
-- now.
with part as materialized (
	select (select least from storageapi.partitions where kind = 'event_ids' and least <= clock.at * 4096 order by least desc limit 1) as current,
		(select event from storageapi.marks where name = 'ids') as mark
	from (
		select greatest((extract(epoch from least(clock_timestamp(), $4::timestamptz) - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint, last_value) as at
		from storageapi.event_clock
	) clock
), input as materialized (
	select i.* from unnest($1::text[], $2::text[], $3::bigint[]) as i (account, id, event) cross join part
	where i.event >= part.mark order by i.account, i.id
), claimed as (
	insert into storageapi.event_ids as k (part, account, id, event)
	select part.current, account, id, event from input cross join part
	on conflict (part, account, id) do update set event = excluded.event where k.event < (select mark from part)
	returning event
)
select (select count(*) from input), (select count(*) from claimed)
