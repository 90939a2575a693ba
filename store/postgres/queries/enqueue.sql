-- Stores events and their pending deliveries, and adds all deliveries to the change feed in one
-- row. It returns the places of the new events, and the number of deliveries of each. No two events
-- may have the same account and id.
--
-- Webhooks are read as of the beginning of the statement, without locks. A delivery to a webhook
-- that is deleted at the same time has no effect.
-- $1 accounts, $2 ids, $3 types, $4 times, $5 bodies, $6 shards, $7 trace contexts, $11 resources
-- and $12 scopes of the types, as parallel lists;
-- $8 changeAdded; $9 the id of the only webhook that gets the events, or empty for all subscribed
-- webhooks; $10 the latest time that counts as now.
with tick as materialized (
	-- The microsecond of the new events: later than all events stored before the statement began,
	-- even if the clock was set back. The sequence event_clock has the latest microsecond, which
	-- shows whether the clock was set back. Only then are the events themselves read, because many
	-- of the newest are not committed yet. (Two concurrent statements may leave the earlier of
	-- their microseconds in the sequence. If the clock is then set back by less than their
	-- difference, this goes unnoticed.)
	-- Five minutes before the last part ends, the event clock stops, so that events can still be
	-- stored if no further part was made.
	select setval(clock,
		greatest(least(now, ends / 4096 - 300000000), mark + 1, case when mark > now + 1000 then storageapi.last_event() / 4096 + 1 end)) as at
	from (
		select (extract(epoch from least(clock_timestamp(), $10::timestamptz) - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint as now,
			(select event from storageapi.marks where name = 'parts') as ends,
			last_value as mark, tableoid::regclass as clock from storageapi.event_clock
	) clock
), part as materialized (
	-- The part to which the IDs are added, and the mark of the IDs. Known IDs are looked up only in
	-- earlier parts. No transaction adds to those, so the lookups conflict with no serializable
	-- transaction.
	select (select least from storageapi.partitions where kind = 'event_ids' and least <= tick.at * 4096 order by least desc limit 1) as current,
		(select event from storageapi.marks where name = 'ids') as mark
	from tick
), input as materialized (
	select i.*, tick.at * 4096 + nextval((select tableoid::regclass from storageapi.event_numbers)) as event, w.owed, w.skipped
	from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::bytea[], $6::smallint[], $7::text[], $11::text[], $12::text[]) with ordinality
		as i (account, id, type, at, body, shard, trace, resource, scope, place)
	cross join tick
	cross join part
	cross join lateral (
		select array_agg(no) filter (where active) as owed, array_agg(no) filter (where not active) as skipped
		from storageapi.webhooks where account = i.account and events && array[i.type, '*:' || i.scope] and ($9::text = '' or id = $9)
			and (resources = '{}' or resources @> array[i.resource])) w
	where not exists (select from storageapi.erasures where account = i.account)
		and not exists (
			select from storageapi.partitions p
			cross join lateral (select event from storageapi.event_ids where part = p.least and account = i.account and id = i.id limit 1) k
			where p.kind = 'event_ids' and p.least < part.current and k.event >= part.mark)
), claimed as (
	insert into storageapi.event_ids as k (part, account, id, event)
	select part.current, account, id, event from input cross join part
	on conflict (part, account, id) do update set event = excluded.event where k.event < (select mark from part)
	returning event
), new as materialized (
	select input.* from claimed join input using (event)
), added as (
	insert into storageapi.event_log (event, account, id, type, at, matched, trace, resource)
	select event, account, id, type, at, coalesce(cardinality(owed), 0), nullif(trace, ''), nullif(resource, '') from new
), bodies as (
	insert into storageapi.event_bodies (event, body)
	select event, body from new where owed is not null or skipped is not null
), queued as (
	insert into storageapi.pending (webhook, event, shard, recovered, due, attempts, before)
	select unnest(owed), event, shard, false, least(clock_timestamp(), $10::timestamptz), 0, 0 from new
), noted as (
	insert into storageapi.changes (kind, shards, webhooks, events)
	select $8::smallint, array_agg(shard), array_agg(webhook), array_agg(event) from (select shard, unnest(owed) as webhook, event from new) n having count(*) > 0
), logged as (
	insert into storageapi.attempt_log (event, webhook, number, state, took, status, class, error, response)
	select event, unnest(skipped), 0, 3, 0, 0, '', '', '' from new
)
select place::integer - 1, coalesce(cardinality(owed), 0) from new
