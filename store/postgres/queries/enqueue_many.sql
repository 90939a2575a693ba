-- Stores events and their pending deliveries to all subscribed webhooks, and notes one change for all of
-- them. It returns the places of the new events, and how many deliveries each has. No two of the events
-- have the same account and id (deduplication key). See enqueue_one.
-- $1 accounts, $2 ids, $3 types, $4 times, $5 bodies, $6 shards and $7 traces, element by element;
-- $8 changeAdded.
with tick as materialized (
	-- The microsecond of the events stored now: later than those of all events stored before the statement
	-- began, even if the clock was set back. The sequence event_clock has the latest one and shows whether
	-- the clock was set back. Only then are the events themselves read, because many of the newest are not
	-- committed yet. (Two statements at once may leave the earlier of their microseconds in the sequence: a
	-- clock that is set back at that moment, by less than their difference, goes unnoticed.)
	select setval(clock,
		greatest(now, mark + 1, case when mark > now + 1000 then (select event / 4096 + 1 from storageapi.events order by event desc limit 1) end)) as at
	from (
		select (extract(epoch from clock_timestamp() - '2020-01-01 00:00:00Z'::timestamptz) * 1000000)::bigint as now,
			last_value as mark, tableoid::regclass as clock from storageapi.event_clock
	) clock
), input as materialized (
	select i.*, tick.at * 4096 + nextval((select tableoid::regclass from storageapi.event_numbers)) as event, w.owed, w.skipped
	from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::bytea[], $6::smallint[], $7::text[])
		with ordinality as i (account, id, type, at, body, shard, trace, place)
	cross join tick
	cross join lateral (
		select array_agg(no) filter (where active) as owed, array_agg(no) filter (where not active) as skipped
		from storageapi.webhooks where account = i.account and events @> array[i.type]) w
	where not exists (select from storageapi.erasures where account = i.account)
), added as (
	insert into storageapi.events (event, account, id, type, at, matched, body, trace)
	select event, account, id, type, at, coalesce(cardinality(owed), 0), case when owed is not null or skipped is not null then body end, nullif(trace, '')
	from input
	on conflict (account, id) where known do nothing
	returning event, matched
), new as materialized (
	select place, event, shard, matched, owed, skipped from added join input using (event)
), queued as (
	insert into storageapi.pending (webhook, event, shard, recovered, due, attempts, before)
	select unnest(owed), event, shard, false, clock_timestamp(), 0, 0 from new
), noted as (
	insert into storageapi.changes (kind, shards, webhooks, events)
	select $8::smallint, array_agg(shard), array_agg(webhook), array_agg(event) from (select shard, unnest(owed) as webhook, event from new) n having count(*) > 0
), logged as (
	insert into storageapi.attempts (event, webhook, number, state, took, status, class, error, response)
	select event, unnest(skipped), 0, 3, 0, 0, '', '', '' from new
)
select place::integer - 1, matched from new
